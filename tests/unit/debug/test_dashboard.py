"""The dashboard: services, callers, proxies, certificates, events and access."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from ca.csr import decode_csr
from ca.pem import certificate_pem
from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug import application as debug_application
from pilot.debug.application import application
from pilot.debug.dashboard import certificates, routes, stream
from pilot.debug.dashboard.fleet import ProxyRows, snapshot_stream
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.mesh import WHOLE, mesh_context, show_graph
from pilot.debug.dashboard.stream import EventStream
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_server import FakeConnection, FakeFleet, FakeWatch, sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import World, proxy, rows_of
from testing.security import certificates as issued

HOST = "web.a.svc.cluster.local"
WEB_POD = pod("web-0", "10.0.0.1", labels="{app: web}")
WEB = service("web", "[{name: http, port: 80, targetPort: 8080}]")
IDLE = service("idle", "[{name: http, port: 80}]")


SLICE = endpoint_slice("web", at("10.0.0.1", "web-0"))


def policy(name: str, rules: str, action: str = "ALLOW") -> Plain:
    return make("AuthorizationPolicy", name, f"{{action: {action}, rules: [{rules}]}}", "a")


def route(gateways: str) -> Plain:
    return make(
        "VirtualService",
        "r",
        f"{{hosts: [shop.example], gateways: {gateways}, http: [{{route: [{{destination: {{host: web}}}}]}}]}}",
        "a",
    )


async def show(
    mesh_world: World,
    *namespaces: str,
    problems: tuple[Problem, ...] = (),
    connections: tuple[FakeConnection, ...] = (),
) -> dict[str, Any]:
    graph = await CachedGraph(mesh_world.mesh).get()
    view = show_graph(
        graph, mesh_context(sources(mesh_world.mesh, *connections, problems=problems)), frozenset(namespaces)
    )
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(view))
    return decoded


def services(view: dict[str, Any]) -> dict[str, Any]:
    return {s["host"]: s for namespace in view["namespaces"] for s in namespace["services"]}


async def test_services_are_grouped_by_namespace() -> None:
    problem = Problem(code="c", object=ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web"), message="m")
    view = await show(
        world(WEB, WEB_POD, SLICE, IDLE, service("idler", "[]")),
        problems=(problem,),
        connections=(connection("web-0.a"),),
    )
    (namespace,) = view["namespaces"]
    assert {name: namespace[name] for name in ("name", "count", "unready", "problems", "proxies")} == {
        "name": "a",
        "count": 3,
        "unready": 2,
        "problems": 1,
        "proxies": 1,
    }
    web = services(view)[HOST]
    assert (web["ready"], web["total"], web["ports"], web["problems"], web["callers"]) == (
        1,
        1,
        [80],
        1,
        None,
    )


@pytest.mark.parametrize(
    ("policies", "callers"),
    [
        ((), None),
        ((policy("p", "{}", "DENY"),), None),
        ((policy("p", "{from: [{source: {namespaces: [shop]}}]}"),), [["shop", ""]]),
        ((policy("p", "{from: [{source: {principals: [cluster.local/ns/b/sa/c, '*']}}]}"),), [["b", "c"]]),
        ((policy("p", "{from: [{source: {serviceAccounts: [x/y, z]}}]}"),), [["x", "y"], ["a", "z"]]),
        (
            (
                policy("p", "{from: [{source: {namespaces: [b]}}]}"),
                policy("q", "{to: [{operation: {methods: [GET]}}]}"),
            ),
            None,
        ),
        ((policy("p", ""),), []),
    ],
)
async def test_callers_come_from_policies(policies: tuple[Plain, ...], callers: list[list[str]] | None) -> None:
    web = services(await show(world(WEB, WEB_POD, SLICE, *policies)))[HOST]
    assert web["callers"] == callers
    assert web["policies"] == [f"{p['spec']['action']} a/{p['metadata']['name']}" for p in policies]


async def test_routes_link_gateways_and_hosts_to_services() -> None:
    entry = make(
        "ServiceEntry", "shop", "{hosts: [shop.example], ports: [{name: http, number: 80}], resolution: NONE}", "a"
    )
    gateway = make("Gateway", "g", "{servers: [{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]}", "a")
    view = await show(world(WEB, entry, gateway, route("[g, mesh]")))
    assert view["gateways"] == [{"namespace": "a", "name": "g", "problems": 0}]
    assert [(link["from"], link["to"], link["by"]) for link in view["links"]] == [
        ("gateway a/g", f"service {HOST}", "a/r"),
        ("service shop.example", f"service {HOST}", "a/r"),
    ]


async def test_folded_links_are_counted_and_resolved() -> None:
    entry = make(
        "ServiceEntry", "shop", "{hosts: [shop.example], ports: [{name: http, number: 80}], resolution: NONE}", "b"
    )
    other = make(
        "ServiceEntry", "more", "{hosts: [more.example], ports: [{name: http, number: 80}], resolution: NONE}", "b"
    )
    routes = [
        make(
            "VirtualService",
            "r",
            f"{{hosts: [shop.example, more.example], http: [{{route: [{{destination: {{host: {host}}}}}]}}]}}",
            "b",
        )
        for host in (HOST, "gone.a.svc.cluster.local")
    ]
    policies = [policy(name, "{from: [{source: {namespaces: [b, nowhere]}}]}") for name in ("p", "q")]
    view = await show(world(WEB, WEB_POD, SLICE, entry, other, routes[0], policies[0]))
    assert view["links"] == [
        {"from": "namespace b", "to": f"service {HOST}", "kind": "policy", "by": "", "count": 1},
        {"from": "service more.example", "to": f"service {HOST}", "kind": "route", "by": "b/r", "count": 1},
        {"from": "service shop.example", "to": f"service {HOST}", "kind": "route", "by": "b/r", "count": 1},
    ]
    assert (await show(world(WEB, WEB_POD, SLICE, entry, other, routes[1])))["links"] == []
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(WHOLE)]
    folded = await show(world(WEB, WEB_POD, SLICE, IDLE, entry, other, routes[0], *policies, *many))
    assert folded["links"] == [
        {"from": "namespace b", "to": "namespace a", "kind": "policy", "by": "", "count": 1},
        {"from": "namespace b", "to": "namespace a", "kind": "route", "by": "b/r", "count": 2},
    ]


async def test_large_mesh_lists_only_requested_namespaces() -> None:
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(WHOLE)]
    caller = make("ServiceEntry", "b", "{hosts: [b.example], ports: [{name: http, number: 80}], resolution: NONE}", "b")
    mesh = world(WEB, WEB_POD, SLICE, caller, policy("p", "{from: [{source: {namespaces: [b]}}]}"), *many)
    folded = await show(mesh)
    assert services(folded) == {}
    assert [(link["from"], link["to"], link["kind"]) for link in folded["links"]] == [
        ("namespace b", "namespace a", "policy")
    ]
    assert set(services(await show(mesh, "b"))) == {"b.example"}


def connection(name: str, **watches: FakeWatch) -> FakeConnection:
    namespace = name.partition(".")[2]
    node = proxy("sidecar", name.partition(".")[0], namespace, "10.0.0.1")
    return FakeConnection(f"{name}-1", name, node, subscriptions={BY_SHORT_NAME[t]: w for t, w in watches.items()})


@pytest.mark.parametrize(
    ("watch", "state", "error"),
    [
        (FakeWatch(), "synced", ""),
        (FakeWatch(nonce_sent="n2"), "waiting", ""),
        (FakeWatch(nonce_sent="", nonce_acked="", sent_at=0.0), "synced", ""),
        (FakeWatch(nonce_sent="n2", last_error="no"), "error", "cds: no"),
    ],
)
def test_proxy_state(watch: FakeWatch, state: str, error: str) -> None:
    row, sent_at, _ = snapshot_stream(connection("web-0.a", cds=watch))
    assert (row.name, row.namespace, row.state, row.error, sent_at) == ("web-0", "a", state, error, watch.sent_at)


def test_waiting_time_starts_at_the_oldest_unacked_response() -> None:
    watches = {
        "cds": FakeWatch(sent_at=5.0),
        "lds": FakeWatch(nonce_sent="n2", sent_at=4.0),
        "rds": FakeWatch(nonce_sent="n2", sent_at=3.0),
    }
    row, sent_at, _ = snapshot_stream(connection("web-0.a", **watches))
    assert (row.waits_since, sent_at) == (3.0, 5.0)
    snapshot = snapshot_stream(connection("web-0.a", **watches), row)
    assert snapshot.row is row
    watches["rds"].nonce_acked = "n2"
    assert snapshot_stream(connection("web-0.a", **watches), row).row == row._replace(waits_since=4.0)


async def test_poll_returns_only_changes() -> None:
    a, b, c = (connection(name, cds=FakeWatch()) for name in ("a.x", "b.x", "c.x"))
    fleet = FakeFleet(a, b)
    rows = ProxyRows(fleet)
    assert [row.name for row in (await rows.poll()).changed] == ["a", "b"]
    assert rows.waiting == 0
    a.subscriptions[BY_SHORT_NAME["cds"]].nonce_sent = "n2"
    a.activity += 1
    fleet.current = [a, c]
    update = await rows.poll()
    assert ([(row.name, row.state) for row in update.changed], update.gone, rows.waiting) == (
        [("a", "waiting"), ("c", "synced")],
        ["b.x-1"],
        1,
    )
    assert [row["id"] for row in rows.plain()] == ["a.x-1", "c.x-1"]
    fleet.current = []
    assert (await rows.poll()).gone == ["a.x-1", "c.x-1"]
    assert rows.waiting == 0


async def test_idle_proxy_is_not_inspected() -> None:
    idle = connection("a.x", cds=FakeWatch())
    rows = ProxyRows(FakeFleet(idle))
    await rows.poll()
    idle.subscriptions = {}
    assert (await rows.poll()).changed == []
    idle.activity += 1
    assert await rows.poll() == ([], [], 1)


def test_secret_certificates_are_listed_without_keys() -> None:
    leaf = issued.root().issue(decode_csr(issued.csr()), [issued.IDENTITY], issued.DAY, issued.NOW)
    data = {"tls.crt": certificate_pem(leaf), "tls.key": b"SECRET", "ca.crt": b"no certificate"}
    coded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "a"}, "data": coded}
    mesh_world = world(secret)
    material = certificates.material(mesh_world.mesh)
    not_before, not_after = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    assert certificates.validity(material) == [certificates.Validity("Secret a/web", not_before, not_after)]
    assert b"SECRET" not in b"".join(item.pem for item in material)


def test_number_of_certificates_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    coded = {name: base64.b64encode(name.encode()).decode() for name in ("tls.crt", "tls.key", "ca.crt")}
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "a"}, "data": coded}
        for name in ("x", "y")
    ]
    material = [
        certificates.Material(f"Secret a/{name}", pem) for name in ("x", "y") for pem in (b"tls.crt", b"ca.crt")
    ]
    mesh_world = world(*secrets)
    for limit in range(len(material) + 1):
        monkeypatch.setattr(certificates, "MOST", limit)
        assert certificates.material(mesh_world.mesh) == material[:limit]


def test_root_is_listed_once_this_process_signs() -> None:
    metrics = Metrics()
    assert certificates.of_authority(metrics) == []
    metrics.root_expires(1_900_000_000.0)
    assert certificates.of_authority(metrics) == [certificates.Validity("root of the mesh", 0.0, 1_900_000_000.0)]


@pytest.fixture(autouse=True)
def _manual_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the periodic updates, so that a test triggers them."""
    monkeypatch.setattr(stream, "SECONDS", 3600.0)


async def test_reached_counts_proxies_with_new_responses() -> None:
    mesh_world = world(WEB)
    watch = FakeWatch()
    client = connection("web-0.a", cds=watch)
    events_stream = EventStream(sources(mesh_world.mesh, client))
    events = events_of(events_stream)
    await anext(events)
    watch.sent_at += 1
    client.activity += 1
    for expected in (1, 0):
        await events_stream.tell()
        _, data = event(await anext(events))
        assert data["reached"] == expected
    await events.aclose()


async def test_updates_continue_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream, "SECONDS", 0.0)
    events_stream = EventStream(sources(world(WEB).mesh))
    calls, get_graph = 0, events_stream.graph.get

    async def fail_once() -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ZeroDivisionError
        return await get_graph()

    monkeypatch.setattr(events_stream.graph, "get", fail_once)
    events = events_of(events_stream)
    async with asyncio.timeout(30):
        assert [event(await anext(events))[0] for _ in range(4)] == ["state", "change", "change", "change"]
    assert calls >= 4
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["cannot update the dashboard"]
    await events.aclose()


async def test_events_start_with_the_state_then_changes() -> None:
    mesh_world = world(WEB)
    page_sources = sources(mesh_world.mesh, connection("web-0.a", cds=FakeWatch()))
    events_stream = EventStream(page_sources)
    events = events_of(events_stream)
    kind, data = event(await anext(events))
    assert (kind, [row["state"] for row in data["proxies"]]) == ("state", ["synced"])
    assert isinstance(page_sources.fleet, FakeFleet)
    page_sources.fleet.current = []
    mesh_world.apply_objects(IDLE)
    await events_stream.tell()
    kind, data = event(await anext(events))
    assert (kind, data["gone"], data["proxies"], data["revision"]) == (
        "change",
        ["web-0.a-1"],
        [],
        mesh_world.mesh.revision,
    )
    await events_stream.tell()
    kind, data = event(await anext(events))
    assert kind == "change"
    assert not {"proxies", "problems", "revision"} & data.keys()
    await events.aclose()


async def test_changed_graph_is_announced() -> None:
    mesh_world = world(WEB, WEB_POD, SLICE)
    events_stream = EventStream(sources(mesh_world.mesh))
    events = events_of(events_stream)
    await anext(events)

    async def next_data() -> dict[str, Any]:
        await events_stream.tell()
        return event(await anext(events))[1]

    assert "picture" in await next_data()
    assert "picture" not in await next_data()
    rule = make("DestinationRule", "r", "{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}", "a")
    for change, has_picture in (
        (rule, False),
        (IDLE, True),
        (route("[mesh]"), True),
        (policy("p", "{}", "DENY"), True),
    ):
        mesh_world.apply_objects(change)
        data = await next_data()
        assert (data["revision"], "picture" in data) == (mesh_world.mesh.revision, has_picture)
        cached, fresh = await events_stream.graph.get(), await CachedGraph(mesh_world.mesh).get()
        assert (sorted(cached.services), cached.gateways, sorted(cached.links)) == (
            sorted(fresh.services),
            fresh.gateways,
            sorted(fresh.links),
        )
    await events.aclose()


async def test_graph_fetched_between_updates_is_still_announced() -> None:
    mesh_world = world(WEB)
    events_stream = EventStream(sources(mesh_world.mesh))
    events = events_of(events_stream)
    await anext(events)
    await events_stream.tell()
    await anext(events)
    mesh_world.apply_objects(IDLE)
    await events_stream.graph.get()
    await events_stream.tell()
    assert "picture" in event(await anext(events))[1]
    await events.aclose()


async def test_cached_graph_follows_changes() -> None:
    mesh_world = world(WEB, route("[mesh]"))
    cached = CachedGraph(mesh_world.mesh)
    cached.keep()
    assert [len(part) for part in await cached.get()] == [1, 0, 1]
    gateway = make("Gateway", "g", "{servers: [{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]}", "a")
    mesh_world.apply_objects(IDLE, gateway)
    assert [len(part) for part in await cached.get()] == [2, 1, 1]
    mesh_world.set(dict.fromkeys(rows_of([WEB, route("[mesh]")])))
    graph = await cached.get()
    assert ([facts.host for facts in graph.services], graph.links) == (["idle.a.svc.cluster.local"], [])


async def test_graph_is_dropped_without_clients() -> None:
    mesh_world = world(WEB, WEB_POD, SLICE, route("[mesh]"))
    events_stream = EventStream(sources(mesh_world.mesh))
    events = events_of(events_stream)
    mesh_world.mesh.collect()
    before = len(mesh_world.mesh)
    await anext(events)
    await events_stream.tell()
    assert len(mesh_world.mesh) > before
    await events.aclose()
    mesh_world.mesh.collect()
    assert len(mesh_world.mesh) == before


async def test_clients_receive_changes_independently() -> None:
    page_sources = sources(world().mesh)
    events_stream = EventStream(page_sources)
    first = events_of(events_stream)
    await anext(first)
    assert isinstance(page_sources.fleet, FakeFleet)
    page_sources.fleet.current = [connection("web-0.a", cds=FakeWatch())]
    second = events_of(events_stream)
    await anext(second)
    await events_stream.tell()
    assert [len(event(await anext(events))[1]["proxies"]) for events in (first, second)] == [1, 1]
    await first.aclose()
    await second.aclose()


async def test_updates_stop_without_clients() -> None:
    events_stream = EventStream(sources(world().mesh))
    first, second = events_of(events_stream), events_of(events_stream)
    await anext(first)
    await anext(second)
    await first.aclose()
    assert events_stream._ticking is not None
    await second.aclose()
    assert events_stream._ticking is None


async def test_slow_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOWEST", 2)
    events_stream = EventStream(sources(world().mesh))
    slow, quick = events_of(events_stream), events_of(events_stream)
    await anext(slow)
    await anext(quick)
    for _ in range(3):
        await events_stream.tell()
        await anext(quick)
    assert [event(item)[0] async for item in slow] == ["change", "change"]
    await quick.aclose()


async def test_close_ends_all_streams() -> None:
    events_stream = EventStream(sources(world().mesh))
    events = events_of(events_stream)
    await anext(events)
    events_stream.close()
    assert [item async for item in events] == [b""]


def events_of(stream: EventStream) -> Any:
    """Return the generator of a client's events."""
    return stream.events()


def event(text: bytes) -> tuple[str, dict[str, Any]]:
    head, data = text.decode().strip().split("\n")
    return head.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_page_loads_no_external_resources() -> None:
    async with TestClient(TestServer(application(sources(world().mesh)))) as client:
        for path in (routes.PATH, *(f"{routes.PATH}/{name}" for name in routes._FILES[1:])):
            async with client.get(path) as response:
                text = await response.text()
                assert response.status == 200
                assert "default-src 'self'" in response.headers["Content-Security-Policy"]
                assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
        async with client.get(f"{routes.PATH}/mesh") as response:
            assert await response.json() == {"namespaces": [], "gateways": [], "links": [], "services": 0}
        async with client.get("/") as response:
            assert routes.PATH in await response.text()


@pytest.mark.parametrize("path", ["", "/mesh", "/events", "/page.js"])
async def test_remote_access_requires_authentication(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(debug_application, "is_loopback", lambda request: False)
    async with (
        TestClient(TestServer(application(sources(world().mesh)))) as client,
        client.get(routes.PATH + path) as response,
    ):
        assert response.status == 401


async def test_close_ends_a_stream_with_unread_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOWEST", 2)
    events_stream = EventStream(sources(world().mesh))
    events = events_of(events_stream)
    await anext(events)
    for _ in range(2):
        await events_stream.tell()
    events_stream.close()
    received = [item async for item in events]
    assert [item and event(item)[0] for item in received] == ["change", b""]
    await events.aclose()


async def test_change_reports_responses_since_the_last_one() -> None:
    page_sources = sources(world().mesh)
    events_stream = EventStream(page_sources)
    events = events_of(events_stream)
    await anext(events)
    updates = []
    for responses, size in ((3, 500), (0, 0)):
        page_sources.metrics.responses += responses
        page_sources.metrics.response_bytes += size
        await events_stream.tell()
        updates.append(event(await anext(events))[1])
    assert [(update["responses"], update["bytes"]) for update in updates] == [(3, 500), (0, 0)]
    await events.aclose()


async def test_waiting_counts_connected_unacked_proxies() -> None:
    watches = {name: FakeWatch(nonce_sent="n2") for name in ("a.x", "b.x", "c.x")}
    connections = {name: connection(name, cds=watch) for name, watch in watches.items()}
    fleet = FakeFleet(*connections.values(), connection("d.x", cds=FakeWatch()))
    rows, waiting = ProxyRows(fleet), []
    await rows.poll()
    waiting.append(rows.waiting)
    watches["a.x"].nonce_acked = "n2"
    connections["a.x"].activity += 1
    await rows.poll()
    waiting.append(rows.waiting)
    fleet.current = [item for item in fleet.current if item.id != "b.x-1"]
    await rows.poll()
    waiting.append(rows.waiting)
    assert waiting == [3, 2, 1]


async def test_problems_are_sent_on_change_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "PROBLEMS", 2)
    mesh_world = world(WEB)
    problems: list[Problem] = []
    events_stream = EventStream(sources(mesh_world.mesh, problems=problems))
    events = events_of(events_stream)
    await anext(events)

    async def next_codes() -> list[str] | None:
        await events_stream.tell()
        entries = event(await anext(events))[1].get("problems")
        return [p["code"] for p in entries] if entries is not None else None

    def add(code: str) -> None:
        problems.insert(
            0, Problem(code=code, object=ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web"), message="m")
        )

    for code, expected in (("one", ["one"]), ("two", ["two", "one"]), ("three", None)):
        add(code)
        assert await next_codes() == expected
    mesh_world.apply_objects(IDLE)
    assert await next_codes() == ["three", "two"]
    await events.aclose()
