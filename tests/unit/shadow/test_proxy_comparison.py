"""Two meshes in memory, one of which is the reference: what differs, and the object that it follows from."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.shadow.known_differences import ShadowVerdict, find_known
from pilot.shadow.proxy_comparison import ProxyReport, compare_proxies
from pilot.shadow.reference_proxies import ReferenceProxy, read_proxies
from pilot.shadow.resource_comparison import LeafDifference, ResourceDifference, Side
from testing.mesh.world import proxy
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


PATCH = """
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: belt, namespace: shop}
spec:
  configPatches:
  - applyTo: LISTENER
    match: {context: SIDECAR_OUTBOUND, proxy: {metadata: {LINE: belt}}, listener: {name: virtualOutbound}}
    patch: {operation: MERGE, value: {stat_prefix: belt}}
"""


async def test_metadata_that_the_reference_does_not_show_are_inferred() -> None:
    web, api = PROXIES
    hidden = web._replace(proxy=replace(web.proxy, metadata={**web.proxy.metadata, "LINE": "belt"}))
    report = await compare_proxies([MemoryPages(OBJECTS + PATCH, [hidden, api])], mesh_of(OBJECTS + PATCH))
    assert (report.causes, report.inferred) == ([], {web.connection_id: {"LINE": "belt"}})


SECURE = """
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: books, namespace: shop}
spec: {selector: {matchLabels: {app: books}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {9: {mode: DISABLE}}}
"""


async def attributed(text: str, old: str, new: str) -> set[tuple[str, str]]:
    """Return the objects to which the differences are attributed if a value in additional objects differs."""
    pages = MemoryPages(OBJECTS + text, [connection("books", "10.1.0.1")])
    report = await compare_proxies([pages], mesh_of(OBJECTS + text.replace(old, new)))
    return {(cause.object.kind.name, cause.object.name) for cause in report.causes if cause.object is not None}


async def test_a_mode_that_is_that_of_the_namespace_is_attributed_to_the_policy_of_the_workload() -> None:
    assert await attributed(SECURE, "PERMISSIVE", "STRICT") == {("PeerAuthentication", "books")}


TOKENS = """
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: all, namespace: shop}
spec: {jwtRules: [{issuer: https://b.example.com, jwks: '{"keys": []}'}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: books, namespace: shop}
spec: {selector: {matchLabels: {app: books}}, jwtRules: [{issuer: https://a.example.com, jwks: '{"keys": []}'}]}
"""


async def test_an_item_that_moves_is_attributed_to_the_object_with_the_new_text() -> None:
    moved = await attributed(TOKENS, "https://a.example.com", "https://z.example.com")
    assert moved == {("RequestAuthentication", "books")}


ZTUNNEL = """
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: books, namespace: shop}
spec: {selector: {matchLabels: {app: books}}, action: DENY, rules: [{from: [{source: {namespaces: [a]}}]}]}
"""


async def test_workloads_of_ztunnels_are_compared() -> None:
    watches = {BY_SHORT_NAME[kind]: frozenset[str]() for kind in ("wds", "wads")}
    one = ReferenceProxy("ztunnel.shop-1", proxy("ztunnel", "ztunnel", "shop", "10.1.0.7"), watches)
    pages, text = MemoryPages(OBJECTS + ZTUNNEL, [one], PILOT_ENABLE_AMBIENT="true"), OBJECTS + ZTUNNEL
    equal = await compare_proxies([pages], mesh_of(text, PILOT_ENABLE_AMBIENT="true"))
    assert (equal.causes, equal.unread, equal.resources) == ([], {}, 3)
    text = text.replace("serviceAccountName: books", "serviceAccountName: other")
    (cause,) = (await compare_proxies([pages], mesh_of(text, PILOT_ENABLE_AMBIENT="true"))).causes
    assert (cause.fields, cause.object and cause.object.name) == (("serviceAccount",), "books-1")


@pytest.mark.parametrize(
    ("kind", "path", "values", "verdict"),
    [
        ("cds", "dnsLookupFamily", ("ALL", "V4_ONLY"), ShadowVerdict.LEAK),
        ("cds", "dnsLookupFamily", ("ALL", "V6_ONLY"), None),
        ("eds", "endpoints[0].lbEndpoints[0].healthStatus", ("UNHEALTHY", "DRAINING"), ShadowVerdict.LEAK),
        ("eds", "endpoints[0].lbEndpoints[0].healthStatus", ("DRAINING", "UNHEALTHY"), None),
        ("rds", "virtualHosts[allow_any].includeRequestAttemptCount", (True, None), ShadowVerdict.LEAK),
        ("wads", "groups[0].rules[0].matches[0]", ({}, None), ShadowVerdict.INTENDED),
        ("wads", "groups[0].rules[0].matches[0].notPrincipals[0].presence", ({}, None), None),
    ],
)
def test_known_differences(kind: str, path: str, values: tuple[Any, Any], verdict: ShadowVerdict | None) -> None:
    difference = ResourceDifference(kind, "name", Side.BOTH, (LeafDifference(path, *values),))
    reason = find_known(difference)
    assert (reason.verdict if reason is not None else None) is verdict


async def test_the_nodes_of_proxies_are_restored() -> None:
    connected = await read_proxies(MemoryPages(OBJECTS, PROXIES))
    assert [(one.node_id, one.watches) for one in connected.proxies] == [(one.node_id, one.watches) for one in PROXIES]
