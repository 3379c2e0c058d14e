"""NACKs are traced back to the causing objects, which report them until a response is accepted."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.problem import ObjectRef, Severity
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.text import cut
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.analysis.nack import NACKS
from pilot.mesh.model.nack import Nack, NackKey
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import describe_nacks
from pilot.xds.nack_recorder import DEBOUNCE, NackRecorder
from pilot.xds.push.discovery import Discovery
from pilot.xds.session.sotw import SotwSession
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.clients.ads import Client
from testing.control_planes.kube_plane import Plane, running
from testing.edits.gateway_objects import gateway_object
from testing.kube.kube_access import until, write_kubeconfig
from testing.mesh.clock import VirtualClock
from testing.mesh.objects import Plain, make, pod, world

LISTENERS = "[{name: http, port: 80, protocol: HTTP}, {name: other, port: 81, protocol: HTTP}]"
GATEWAY = f"gatewayClassName: istio, addresses: [{{type: Hostname, value: front}}], listeners: {LISTENERS}"
NODE = "router~10.1.0.1~f-0.a~a.svc.cluster.local"


def route(name: str, path: str = "/", listener: str = "http") -> Plain:
    rules = f"rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
    return gateway_object(
        "HTTPRoute", name, f"parentRefs: [{{name: gw, sectionName: {listener}}}], hostnames: [{name}.com], {rules}", "a"
    )


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    objects = (
        make("Namespace", "a"),
        make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}"),
        make(
            "Service",
            "front",
            "{clusterIP: 10.96.0.2, selector: {app: f}, ports: [{name: http, port: 80}, {name: other, port: 81}]}",
        ),
        pod("f-0", "10.1.0.1", labels="{app: f}"),
        gateway_object("Gateway", "gw", GATEWAY, "a"),
        route("one"),
        route("two"),
        route("three", listener="other"),
    )
    for plain in (*definitions(), *objects):
        api_server.put(plain)
    await api_server.start()
    yield api_server
    await api_server.stop()


class Router:
    """A client that acknowledges or rejects its routes."""

    def __init__(self, client: Client) -> None:
        self.client, self.nonce = client, ""

    async def begin(self) -> None:
        await self.client.request("rds", "http.80", "http.81")
        await self.receive()

    async def receive(self) -> None:
        response = await self.client.receive()
        self.nonce = response.nonce
        assert response.type_url.endswith("RouteConfiguration")

    async def acknowledge(self) -> None:
        await self.client.request("rds", nonce=self.nonce)

    async def reject(self, message: str) -> None:
        await self.client.nack("rds", self.nonce, message)


@contextlib.asynccontextmanager
async def routing(server: ApiServer, tmp_path: pathlib.Path) -> AsyncIterator[tuple[Plane, Router]]:
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as plane:
        await until(lambda: plane.plane.ready)
        async with Client(plane, node_id=NODE, LABELS={"app": "f"}, NAMESPACE="a") as client:
            router = Router(client)
            await router.begin()
            yield plane, router


def programmed_condition(server: ApiServer, name: str) -> str:
    """Return the Programmed condition of a route."""
    parents: Any = (server.get(GATEWAY_API, "httproutes", "a", name) or {}).get("status", {}).get("parents", ())
    conditions = [c for parent in parents for c in parent["conditions"] if c["type"] == "Programmed"]
    return "; ".join(f"{c['status']} {c['reason']}: {c['message']}" for c in conditions)


async def test_rejected_route_reports_the_nack_until_accepted(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (plane, router):
        await router.acknowledge()
        server.put(route("two", "/changed"))
        await router.receive()
        await router.reject("no such thing")
        await until(lambda: programmed_condition(server, "two") == "False Rejected: f-0.a rejected RDS: no such thing")
        assert programmed_condition(server, "one") == "", "objects unchanged since the last ACK are not blamed"
        await until(lambda: any(p.code == "refused" and p.object.name == "two" for p in plane.plane.problems))
        server.put(route("two", "/mended"))
        await router.receive()
        await router.acknowledge()
        await until(lambda: programmed_condition(server, "two") == "")
        await until(lambda: not any(p.code == "refused" for p in plane.plane.problems))


async def test_change_during_a_lasting_rejection_is_not_blamed(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (plane, router):

        def blamed() -> set[str]:
            every = {name for _, nack in plane.plane.db.nacks.rows() for _, _, name in nack.objects}
            return every & {"one", "two"}

        await router.acknowledge()
        for name, message, expected in (
            ("two", "no such thing", {"two"}),
            ("one", "no such thing", {"two"}),
            ("one", "something else", {"one", "two"}),
        ):
            server.put(route(name, f"/{len(message)}/{name}"))
            await router.receive()
            await router.reject(message)
            await until(lambda: blamed() == expected)  # noqa: B023
            await asyncio.sleep(2 * DEBOUNCE)
            assert blamed() == expected


async def test_nack_of_a_first_response_blames_every_cause(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (_, router):
        await router.reject("nothing of it")
        await until(lambda: bool(programmed_condition(server, "one")) and bool(programmed_condition(server, "two")))


async def test_nack_naming_a_resource_blames_only_its_causes(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (_, router):
        await router.reject("http.81: nothing of it")
        await until(lambda: bool(programmed_condition(server, "three")))
        assert programmed_condition(server, "one") == programmed_condition(server, "two") == ""


async def test_disconnect_clears_the_nack(server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with routing(server, tmp_path) as (plane, router):
        await router.reject("http.80: nothing of it")
        await until(lambda: len(plane.plane.db.nacks) == 1)
        await router.client.__aexit__()
        await until(lambda: not plane.plane.discovery.connections())
        plane.plane.nacks.sweep()
        assert len(plane.plane.db.nacks) == 0
        await until(lambda: programmed_condition(server, "one") == "")


class Stream:
    """A proxy's stream, whose NACKs are processed when the test advances the clock."""

    def __init__(self) -> None:
        self.db, self.clock = Mesh(), VirtualClock()
        self.discovery = Discovery(self.db, Metrics(), proxy_plan, linger=0.0)
        self.nacks = NackRecorder(self.db, self.discovery, self.clock)
        self.session = SotwSession(self.discovery.name_sets)
        proxy = Proxy(
            type=NodeType.SIDECAR, id="pod.ns", ips=("10.0.0.1",), dns_domain="ns.svc", namespace="ns", metadata={}
        )
        self.connection = self.discovery.connect("node", proxy, "10.0.0.1:99", self.session)

    def subscribe(self, kind: str, *names: str) -> None:
        self.session.receive(discovery_pb2.DiscoveryRequest(type_url=BY_SHORT_NAME[kind], resource_names=names))

    def reject(self, kind: str, message: str) -> None:
        request = discovery_pb2.DiscoveryRequest(type_url=BY_SHORT_NAME[kind])
        request.error_detail.message = message
        rejected = self.session.receive(request).rejected
        assert rejected is not None
        self.nacks.on_nack(self.connection, request.type_url, rejected[1])

    def accept(self, kind: str) -> None:
        url = BY_SHORT_NAME[kind]
        subscription = self.session.subscriptions[url]
        request = discovery_pb2.DiscoveryRequest(
            type_url=url, response_nonce="n", resource_names=[n for n in subscription.names if n != "*"]
        )
        subscription.nonce_sent = "n"
        assert self.session.receive(request).acknowledged
        self.nacks.on_ack(self.connection, url)

    def rows(self) -> list[tuple[NackKey, Nack]]:
        self.clock.advance(DEBOUNCE)
        return list(self.db.nacks.rows())


def row(kind: str, message: str) -> tuple[NackKey, Nack]:
    return NackKey("node", BY_SHORT_NAME[kind]), Nack("pod.ns", kind.upper(), message)


def test_nacks_are_debounced_and_the_last_of_a_type_wins() -> None:
    stream = Stream()
    for kind in ("cds", "lds"):
        stream.subscribe(kind)
    stream.reject("cds", "one")
    stream.clock.advance(DEBOUNCE / 2)
    stream.reject("lds", "m" * 301)
    stream.reject("cds", "two")
    assert not list(stream.db.nacks.rows())
    assert stream.clock.waiting == 1, "NACKs are processed together"
    assert stream.rows() == [row("cds", "two"), row("lds", cut("m" * 301, 300))]
    stream.reject("lds", "three")
    assert stream.rows() == [row("cds", "two"), row("lds", "three")]
    stream.accept("lds")
    assert stream.rows() == [row("cds", "two")]


def test_nack_is_dropped_if_accepted_or_unsubscribed_before_processing() -> None:
    stream = Stream()
    stream.subscribe("cds")
    stream.subscribe("lds")
    stream.subscribe("rds", "a")
    stream.reject("rds", "gone")
    stream.reject("lds", "taken")
    stream.reject("cds", "still refused")
    stream.subscribe("rds")
    stream.accept("lds")
    assert stream.rows() == [row("cds", "still refused")]


class ConfiguredRecorder(NackRecorder):
    """Recorder with configured resources: for each, the objects it stems from and their revisions."""

    def __init__(self, *follows: tuple[str, dict[str, int]]) -> None:
        self._follows = dict(follows)

    def use(self, *objects: Plain) -> None:
        """Set the objects of the mesh."""
        self._db = world(*objects).mesh

    def _resources(self, group: Any) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self._follows]

    def _objects(self, group: Any, resource: Any) -> Iterator[tuple[ObjectRef, int]]:
        return ((ObjectRef(KIND, "a", name), revision) for name, revision in self._follows[resource.name].items())

    def names(self, message: str, since: int) -> list[str]:
        return [ref.name for ref in self._find_causes(["group"], message, since)]


KIND = GroupKind("networking.istio.io", "VirtualService")


def test_causes_follow_from_named_resources_and_changes() -> None:
    recorder = ConfiguredRecorder(("r1", {"x": 5, "y": 6}), ("r2", {"y": 6, "z": 7}), ("", {"w": 8}))
    assert recorder.names("no such thing", -1) == ["w", "x", "y", "z"], "the proxy has acknowledged nothing yet"
    assert [recorder.names("no such thing", since) for since in (0, 5, 6, 7)] == [
        ["w", "x", "y", "z"],
        ["w", "y", "z"],
        ["w", "z"],
        ["w"],
    ]
    assert recorder.names("no such thing", 8) == ["w", "x", "y", "z"], "nothing has changed since"
    assert [recorder.names("r1: no", since) for since in (-1, 0, 5, 6)] == [["x", "y"], ["x", "y"], ["y"], ["x", "y"]]
    assert recorder.names("r1 and r2", 6) == ["z"]


def test_nack_naming_a_cluster_blames_only_the_objects_for_its_host() -> None:
    route = "{{hosts: [{0}], http: [{{route: [{{destination: {{host: {1}}}}}]}}]}}"
    recorder = ConfiguredRecorder(("r", {"own": 5, "to": 6, "mirror": 6, "other": 7}))
    recorder.use(
        make("VirtualService", "own", route.format("cart", "x")),
        make("VirtualService", "to", route.format("b.com", "cart")),
        make("VirtualService", "mirror", route.format("c.com", "x").replace("route:", "mirror: {host: cart}, route:")),
        make("VirtualService", "other", route.format("cart.b.svc.cluster.local", "scart")),
    )
    message = "route: unknown cluster 'outbound|80|v3|{}.a.svc.cluster.local'"
    assert recorder.names(message.format("cart"), -1) == ["mirror", "own", "to"]
    assert recorder.names(message.format("cart"), 5) == ["mirror", "to"], "changed since the last ACK"
    assert recorder.names(message.format("cart"), 6) == ["mirror", "own", "to"], "only another object has changed"
    assert recorder.names(message.format("ghost"), -1) == ["mirror", "other", "own", "to"], "no object is for the host"


def test_rejection_by_several_proxies_is_one_problem_with_the_most_suspicious_object() -> None:
    rule, route_of = (
        ObjectRef(GroupKind(KIND.group, kind), "a", "x") for kind in ("DestinationRule", "VirtualService")
    )
    db = Mesh()

    def problems() -> list[tuple[str, str, str]]:
        listed = [problem for key in NACKS.keys(db) for problem in NACKS.problems(db, key)]
        assert {(problem.code, problem.severity) for problem in listed} <= {("refused", Severity.ERROR)}
        return [(p.object.kind.name, p.object.name, p.message) for p in listed]

    keys = [NackKey(name, "rds") for name in ("p", "q")]
    db.commit([(db.nacks, key, Nack(key.proxy, "RDS", "no", (rule, route_of))) for key in keys])
    assert problems() == [("VirtualService", "x", "p, q rejected RDS: no (also built from DestinationRule a/x)")]
    db.commit([(db.nacks, keys[0], None), (db.nacks, keys[1], Nack("q", "LDS", "never"))])
    assert problems() == [("", "", "q rejected LDS: never")]
    db.commit([(db.nacks, keys[1], None)])
    assert problems() == []


@pytest.mark.parametrize(("resources", "objects", "count"), [(50, 20, 20), (51, 20, 0), (50, 21, 0), (1, 1, 1)])
def test_no_cause_is_blamed_above_the_limits(resources: int, objects: int, count: int) -> None:
    revisions = {f"o{number}": 1 for number in range(objects)}
    recorder = ConfiguredRecorder(*((f"resource {number}", revisions) for number in range(resources)))
    assert len(recorder.names("no such thing", 0)) == count
    assert len(recorder.names("resource 0 is wrong", 0)) == (objects if objects <= 20 else 0)


@pytest.mark.parametrize(
    ("count", "names"), [(1, "p1"), (3, "p1, p2, p3"), (4, "p1, p2, p3 and 1 more"), (9, "p1, p2, p3 and 6 more")]
)
def test_description_names_at_most_three_proxies(count: int, names: str) -> None:
    assert (
        describe_nacks([Nack(f"p{n + 1}", "RDS", "no such thing") for n in range(count)])
        == f"{names} rejected RDS: no such thing"
    )
