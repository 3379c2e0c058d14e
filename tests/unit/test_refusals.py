"""A response that a proxy refuses is traced back to the objects that it follows from, and these say so until it is taken."""
from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.model.kind import GATEWAY_API
from pilot.model.refusal import Refusal
from pilot.model.views.refusals import tell
from tests.support.ads import Client
from tests.support.apiserver.definitions import definitions
from tests.support.apiserver.server import ApiServer
from tests.support.gateway_slots import gateway_object
from tests.support.kube import until, write_kubeconfig
from tests.support.kube_plane import Plane, running
from tests.support.objects import Plain, make, pod

LISTENERS = "[{name: http, port: 80, protocol: HTTP}, {name: other, port: 81, protocol: HTTP}]"
GATEWAY = f"gatewayClassName: istio, addresses: [{{type: Hostname, value: front}}], listeners: {LISTENERS}"
NODE = "router~10.1.0.1~f-0.a~a.svc.cluster.local"


def route(name: str, path: str = "/", listener: str = "http") -> Plain:
    rules = f"rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
    return gateway_object("HTTPRoute", name, f"parentRefs: [{{name: gw, sectionName: {listener}}}], hostnames: [{name}.com], {rules}", "a")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    objects = (
        make("Namespace", "a"),
        make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}"),
        make("Service", "front", "{clusterIP: 10.96.0.2, selector: {app: f}, ports: [{name: http, port: 80}, {name: other, port: 81}]}"),
        pod("f-0", "10.1.0.1", labels="{app: f}"),
        gateway_object("Gateway", "gw", GATEWAY, "a"),
        route("one"),
        route("two"),
        route("three", listener="other"),
    )
    for plain in (*definitions(), *objects):
        made.put(plain)
    await made.start()
    yield made
    await made.stop()


class Router:
    """A client that takes its routes, or refuses them."""

    def __init__(self, client: Client) -> None:
        self.client, self.nonce = client, ""

    async def begin(self) -> None:
        await self.client.ask("rds", "http.80", "http.81")
        await self.take()

    async def take(self) -> None:
        response = await self.client.take()
        self.nonce = response.nonce
        assert response.type_url.endswith("RouteConfiguration")

    async def acknowledge(self) -> None:
        await self.client.ask("rds", nonce=self.nonce)

    async def refuse(self, message: str) -> None:
        await self.client.nack("rds", self.nonce, message)


@contextlib.asynccontextmanager
async def routing(server: ApiServer, tmp_path: pathlib.Path) -> AsyncIterator[tuple[Plane, Router]]:
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as plane:
        await until(lambda: plane.plane.ready)
        async with Client(plane, node_id=NODE, LABELS={"app": "f"}, NAMESPACE="a") as client:  # type: ignore[arg-type]
            router = Router(client)
            await router.begin()
            yield plane, router


def refusal(server: ApiServer, name: str) -> str:
    """What the status of a route says of being refused."""
    found: Any = (server.get(GATEWAY_API, "httproutes", "a", name) or {}).get("status", {}).get("parents", ())
    conditions = [c for parent in found for c in parent["conditions"] if c["type"] == "Programmed"]
    return "; ".join(f"{c['status']} {c['reason']}: {c['message']}" for c in conditions)


async def test_a_route_whose_change_was_refused_says_so_until_it_is_taken(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (plane, router):
        await router.acknowledge()
        server.put(route("two", "/changed"))
        await router.take()
        await router.refuse("no such thing")
        await until(lambda: refusal(server, "two") == "False Refused: f-0.a refused RDS: no such thing")
        assert refusal(server, "one") == "", "what has not changed since is not meant"
        await until(lambda: any(p.code == "refused" and p.object.name == "two" for p in plane.plane.problems))
        server.put(route("two", "/mended"))
        await router.take()
        await router.acknowledge()
        await until(lambda: refusal(server, "two") == "")
        await until(lambda: not any(p.code == "refused" for p in plane.plane.problems))


async def test_of_a_first_response_everything_may_be_meant_that_it_follows_from(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (_, router):
        await router.refuse("nothing of it")
        await until(lambda: bool(refusal(server, "one")) and bool(refusal(server, "two")))


async def test_only_what_the_message_names_is_meant(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (_, router):
        await router.refuse("http.81: nothing of it")
        await until(lambda: bool(refusal(server, "three")))
        assert refusal(server, "one") == refusal(server, "two") == ""


async def test_a_proxy_that_goes_refuses_nothing_any_more(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (plane, router):
        await router.refuse("http.80: nothing of it")
        await until(lambda: len(plane.plane.db.refusals) == 1)
        await router.client.__aexit__()
        await until(lambda: not plane.plane.discovery.connections())
        plane.plane.refusals.sweep()
        assert len(plane.plane.db.refusals) == 0
        await until(lambda: refusal(server, "one") == "")


@pytest.mark.parametrize(("count", "who"), [(1, "p1"), (3, "p1, p2, p3"), (4, "p1, p2, p3 and 1 more"), (9, "p1, p2, p3 and 6 more")])
def test_of_many_proxies_that_refuse_the_same_three_are_named(count: int, who: str) -> None:
    assert tell([Refusal(f"p{n + 1}", "RDS", "no such thing") for n in range(count)]) == f"{who} refused RDS: no such thing"
