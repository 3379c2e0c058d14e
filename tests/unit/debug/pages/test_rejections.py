"""Explanations of rejections because of clusters that Envoy does not know."""

from __future__ import annotations

import dataclasses

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.object_delivery import ObjectDelivery
from pilot.debug.page import Refused
from pilot.debug.pages import rejections
from pilot.debug.pages.explain import explain_page
from pilot.debug.pages.rejections import explain_cluster, explain_problems, explain_rejections
from pilot.debug.sources import CommittedObject, Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from testing.mesh.debug_server import FakeConnection, FakeWatch, sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import proxy

CDS, RDS = BY_SHORT_NAME["cds"], BY_SHORT_NAME["rds"]
WEB = service("web", "[{name: http, port: 80}]")
OTHER = service("api", "[{name: http, port: 80}]")
RULE = make("DestinationRule", "web", "{host: web, subsets: [{name: v1}, {name: v2}]}")
NEW = "{http: [{name: main, route: [{destination: {host: web, subset: v3}}]}], hosts: [web]}"
HOST = "web.a.svc.cluster.local"
V3 = f"outbound|80|v3|{HOST}"
ERROR = f"route: unknown cluster '{V3}'"
RULE_REF = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web")
ROUTE = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "web")


def mesh_with(*objects: Plain, error: str = "") -> tuple[Sources, FakeConnection]:
    """Return the sources and the connection of a proxy, which rejects its routes if there is an `error`."""
    mesh_world = world(*objects)
    node = proxy("sidecar", "c", "a", "10.9.0.1")
    watches = {CDS: FakeWatch(), RDS: FakeWatch(last_error=error)}
    connection = FakeConnection("c.a-1", mesh_world.connect(node), node, subscriptions=watches)
    if error:
        key, mesh = NackKey(connection.proxy_key, RDS), mesh_world.mesh
        mesh.commit([(mesh.nacks, key, Nack("c.a", "RDS", error, (RULE_REF, ROUTE)))])
    return sources(mesh_world.mesh, connection), connection


@pytest.mark.parametrize(
    ("objects", "name", "expected"),
    [
        (
            (WEB, RULE),
            V3,
            "not part of the configuration sent to c.a: DestinationRule a/web defines the subsets v1, v2, and no "
            "VirtualService names the subset v3 now",
        ),
        (
            (WEB, RULE, make("VirtualService", "web", NEW)),
            V3,
            "defines the subsets v1, v2, and VirtualService a/web names the subset v3",
        ),
        ((WEB,), V3, f"no DestinationRule defines subsets of {HOST}, and no VirtualService names the subset v3 now"),
        ((RULE,), V3, f"no service has the host {HOST}, and no VirtualService names the subset v3 now"),
        ((WEB,), f"outbound|81||{HOST}", f"{HOST} has the ports 80, and no VirtualService names this host now"),
        ((WEB, make("Sidecar", "s", "{egress: [{hosts: ['b/*']}]}")), V3, f"Sidecar a/s hides {HOST} from the proxy"),
        ((WEB, RULE), f"outbound|80|v1|{HOST}", "the cluster is now part of the configuration sent to c.a"),
        ((WEB,), "custom", "the cluster is not part of the configuration sent to c.a"),
    ],
)
async def test_reasons_for_which_a_cluster_is_missing(objects: tuple[Plain, ...], name: str, expected: str) -> None:
    assert (await explain_cluster(*mesh_with(*objects, OTHER), name)).endswith(expected)


async def test_rejections_problems_and_resources_name_the_subsets() -> None:
    pages, connection = mesh_with(WEB, RULE, error=ERROR)
    why = (await explain_cluster(pages, connection, V3)).partition(": ")[2]
    (rejection,) = await explain_rejections(pages, connection)
    assert rejection.text == (
        f"rejects its routes because of VirtualService a/web or DestinationRule a/web: {ERROR}; "
        f"the cluster is not part of the configuration sent to c.a: {why}"
    )
    (problem,) = await explain_problems(pages, [Problem(code="refused", object=ROUTE, message=ERROR)])
    assert problem.message == f"{ERROR}; the cluster is not part of the configuration sent to c.a: {why}"
    answer = await explain_page(pages, {"proxyID": "c.a", "resource": V3})
    with pytest.raises(Refused) as refused:
        answer.make()
    assert why in refused.value.text
    assert "c.a rejects its routes because of VirtualService a/web or" in refused.value.text


async def test_proxies_that_accept_the_object_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pages, connection = mesh_with(WEB, RULE, error=ERROR)
    version = CommittedObject(True, True, False, 0, "", "", 1, False, False, "")
    deliveries = iter([ObjectDelivery(3, 2, 0, (), 0.0, 0.0), ObjectDelivery(1, 0, 0, (), 0.0, 0.0)])

    async def deliver(_: Sources, ref: ObjectRef, *more: object) -> ObjectDelivery:
        assert ref == ROUTE
        return next(deliveries)

    monkeypatch.setattr(rejections, "find_delivery", deliver)
    pages = dataclasses.replace(pages, find_object=lambda _: version)
    for end in ("; 2 other proxies accepted VirtualService a/web", "; no other proxy accepted VirtualService a/web"):
        (rejection,) = await explain_rejections(pages, connection)
        assert rejection.text.endswith(end)


async def test_other_errors_are_left_as_they_are() -> None:
    pages, connection = mesh_with(WEB, error="no such filter")
    problem = Problem(code="refused", object=ROUTE, message="no such filter")
    assert await explain_problems(pages, [problem]) == [problem]
    assert [one.text for one in await explain_rejections(pages, connection)] == [
        "rejects its routes because of VirtualService a/web or DestinationRule a/web: no such filter"
    ]
