"""Services that Sidecars hide from proxies, on the dashboard and in explanations."""

from __future__ import annotations

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.mesh import MeshContext
from pilot.debug.dashboard.object_answer import describe_object
from pilot.debug.dashboard.proxy_answer import describe_proxy
from pilot.debug.dashboard.service_answer import describe_service
from pilot.debug.page import Later, Refused
from pilot.debug.pages.explain import explain_page
from pilot.debug.sources import Sources
from pilot.mesh.model.service import ServiceRef
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, make, world
from tests.unit.debug.dashboard.test_fleet import connection

OWN = make("Sidecar", "own", '{egress: [{hosts: ["./*"]}]}', "b")
SIDECAR = {"group": NETWORKING, "kind": "Sidecar", "namespace": "b", "name": "own"}
WEB, CART = (service(name, "[{name: http, port: 80}]") for name in ("web", "cart"))
HOST = "web.a.svc.cluster.local"


def pages(*objects: Plain) -> Sources:
    """Return pages of a mesh with two proxies in namespace b, and one in a. Services are in namespace a."""
    mesh_world = world(WEB, CART, service("own", "[{name: http, port: 80}]"), *objects)
    clients = [connection(name, cds=FakeWatch()) for name in ("one.b", "two.b", "three.a")]
    for client in clients:
        client.proxy_key = mesh_world.connect(client.proxy)
    return sources(mesh_world.mesh, *clients)


async def describe_web(page_sources: Sources) -> Plain:
    graph = await CachedGraph(page_sources.db).get()
    return await describe_service(page_sources, graph, MeshContext([], [], {}), ServiceRef(HOST, "a"))


async def test_service_names_the_sidecar_that_hides_it() -> None:
    answer = await describe_web(pages(OWN))
    assert answer["hiddenBy"] == [{"sidecar": SIDECAR, "namespace": "b", "proxies": 2, "changed": 0.0}]


async def test_service_without_sidecars_is_hidden_from_no_proxy() -> None:
    assert (await describe_web(pages()))["hiddenBy"] == []


@pytest.mark.parametrize("hosts", ['"a/*"', '"*/*"', f'"*/{HOST}"'])
async def test_imported_service_is_not_hidden(hosts: str) -> None:
    assert (await describe_web(pages(make("Sidecar", "own", f"{{egress: [{{hosts: [{hosts}]}}]}}", "b"))))[
        "hiddenBy"
    ] == []


async def test_service_that_is_not_exported_is_not_hidden_by_the_sidecar() -> None:
    private = service("web", "[{name: http, port: 80}]")
    private["metadata"]["annotations"] = {"networking.istio.io/exportTo": "."}
    assert (await describe_web(pages(OWN, private)))["hiddenBy"] == []


async def test_proxy_and_sidecar_say_how_many_services_are_hidden() -> None:
    page_sources = pages(OWN)
    ref = ObjectRef(GroupKind(NETWORKING, "Sidecar"), "b", "own")
    (effect,) = (await describe_object(page_sources, ref))["effects"]
    assert effect == {"sidecar": SIDECAR, "namespace": "b", "proxies": 2, "services": 0, "hidden": 3}
    assert describe_proxy(page_sources, "one.b-1")["sidecar"] == effect | {"proxies": 1}
    assert describe_proxy(page_sources, "three.a-1")["sidecar"] is None


async def test_explanation_of_a_hidden_cluster_names_the_sidecar() -> None:
    for resource in (f"outbound|80||{HOST}", HOST, "web.a"):
        answer = await explain_page(pages(OWN), {"proxyID": "one.b", "resource": resource})
        assert isinstance(answer, Later)
        with pytest.raises(Refused, match=r"one\.b has no resource '.*web.*': Sidecar b/own hides web"):
            answer.make()
    visible = await explain_page(pages(OWN), {"proxyID": "three.a", "resource": "web.a"})
    assert isinstance(visible, Later)
    with pytest.raises(Refused, match=rf"the cluster of this service is 'outbound\|80\|\|{HOST}'"):
        visible.make()
