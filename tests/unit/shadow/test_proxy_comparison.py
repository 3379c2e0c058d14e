"""Two meshes in memory, one of which is the reference: what differs, and the object that it follows from."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.shadow.known_differences import ShadowVerdict
from pilot.shadow.proxy_comparison import ProxyReport, compare_proxies
from pilot.shadow.reference_proxies import read_proxies
from tests.unit.shadow.reference_mesh import OBJECTS, MemoryPages, connection, mesh_of

PROXIES = [connection("web", "10.1.0.9"), connection("api", "10.1.0.8")]


async def compare(text: str, change: Any = lambda resource: None) -> ProxyReport:
    """Compare a mesh with the reference, which has OBJECTS."""
    return await compare_proxies([MemoryPages(OBJECTS, PROXIES, change)], mesh_of(text))


async def test_equal_meshes_have_no_difference() -> None:
    report = await compare(OBJECTS)
    assert (report.proxies, report.causes, report.gone, report.rejected) == (2, [], [], {})
    assert report.equal == report.resources > 10


async def test_order_without_meaning_is_no_difference() -> None:
    def reverse(resource: dict[str, Any]) -> None:
        for host in resource.get("virtualHosts", ()):
            host["domains"].reverse()
        resource.get("virtualHosts", []).reverse()

    report = await compare(OBJECTS, reverse)
    assert report.causes == []


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("timeout: 5s", "timeout: 6s", "VirtualService"),
        ("timeout: 5s", "retries: {attempts: 7}", "VirtualService"),
        ("maxConnections: 10", "maxConnections: 11", "DestinationRule"),
        ("addresses: [10.1.0.1]", "addresses: [10.1.0.2]", "EndpointSlice"),
        ("{name: http, port: 80,", "{name: tcp, port: 80,", "Service"),
    ],
)
async def test_a_changed_field_is_attributed_to_its_object(before: str, after: str, kind: str) -> None:
    assert before in OBJECTS
    report = await compare(OBJECTS.replace(before, after))
    first = report.causes[0]
    assert first.verdict is ShadowVerdict.UNEXPLAINED
    assert kind in {cause.object.kind.name for cause in report.causes if cause.object is not None}


async def test_one_cause_covers_all_proxies() -> None:
    report = await compare(OBJECTS.replace("timeout: 5s", "timeout: 6s"))
    (cause,) = report.causes
    shown = cause.show()
    assert cause.object is not None
    assert (str(cause.object.kind), cause.object.namespace) == ("networking.istio.io/VirtualService", "shop")
    assert (shown["proxies"], shown["verdict"]) == (2, "unexplained")
    assert (shown["example"]["reference"], shown["example"]["pyistiod"]) == ("5s", "6s")


async def test_a_resource_of_the_reference_alone_is_attributed_to_the_object_that_it_names() -> None:
    report = await compare(OBJECTS.replace("hosts: [books]", "hosts: [books], gateways: [a/b/c]"))
    assert "VirtualService" in {cause.object.kind.name for cause in report.causes if cause.object is not None}


async def test_subjects_that_only_the_reference_accepts_are_its_leak() -> None:
    def add_subject(resource: dict[str, Any]) -> None:
        text = "outbound|80||books.shop.svc.cluster.local"
        if resource.get("name") == text and "transportSocketMatches" in resource:
            context = resource["transportSocketMatches"][0]["transportSocket"]["typedConfig"]["commonTlsContext"]
            names = context["combinedValidationContext"]["defaultValidationContext"]
            names.setdefault("matchSubjectAltNames", []).append({"exact": "spiffe://gone"})

    report = await compare(OBJECTS, add_subject)
    assert [cause.verdict for cause in report.causes] == [ShadowVerdict.LEAK]


async def test_the_nodes_of_proxies_are_restored() -> None:
    connected = await read_proxies(MemoryPages(OBJECTS, PROXIES))
    assert [(one.node_id, one.watches) for one in connected.proxies] == [(one.node_id, one.watches) for one in PROXIES]
