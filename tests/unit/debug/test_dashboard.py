"""The page of the mesh: what it is told of services, callers, proxies and certificates, and who may see it."""

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
from pilot.lib.metrics import Metrics
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


async def shown(
    made: World, *asked: str, problems: tuple[Problem, ...] = (), connected: tuple[FakeConnection, ...] = ()
) -> dict[str, Any]:
    picture = await CachedGraph(made.mesh).get()
    found = show_graph(picture, mesh_context(sources(made.mesh, *connected, problems=problems)), frozenset(asked))
    as_told: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return as_told


def services(found: dict[str, Any]) -> dict[str, Any]:
    return {s["host"]: s for namespace in found["namespaces"] for s in namespace["services"]}


async def test_services_are_there_by_namespace_with_their_endpoints_and_problems() -> None:
    wrong = Problem(code="c", object=ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web"), message="m")
    found = await shown(
        world(WEB, WEB_POD, SLICE, IDLE, service("idler", "[]")), problems=(wrong,), connected=(connection("web-0.a"),)
    )
    (namespace,) = found["namespaces"]
    assert {name: namespace[name] for name in ("name", "count", "unready", "problems", "proxies")} == {
        "name": "a",
        "count": 3,
        "unready": 2,
        "problems": 1,
        "proxies": 1,
    }
    facts = services(found)[HOST]
    assert (facts["ready"], facts["total"], facts["ports"], facts["problems"], facts["callers"]) == (
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
async def test_callers_are_those_that_policies_let_in(
    policies: tuple[Plain, ...], callers: list[list[str]] | None
) -> None:
    found = services(await shown(world(WEB, WEB_POD, SLICE, *policies)))[HOST]
    assert found["callers"] == callers
    assert found["policies"] == [f"{p['spec']['action']} a/{p['metadata']['name']}" for p in policies]


async def test_routes_lead_from_gateways_and_hosts_to_services() -> None:
    entry = make(
        "ServiceEntry", "shop", "{hosts: [shop.example], ports: [{name: http, number: 80}], resolution: NONE}", "a"
    )
    gateway = make("Gateway", "g", "{servers: [{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]}", "a")
    found = await shown(world(WEB, entry, gateway, route("[g, mesh]")))
    assert found["gateways"] == [{"namespace": "a", "name": "g", "problems": 0}]
    assert [(link["from"], link["to"], link["by"]) for link in found["links"]] == [
        ("gateway a/g", f"service {HOST}", "a/r"),
        ("service shop.example", f"service {HOST}", "a/r"),
    ]


async def test_links_of_namespaces_say_for_how_many_they_stand_and_lead_to_nothing_that_is_not_there() -> None:
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
    is_east_west_gateway = [policy(name, "{from: [{source: {namespaces: [b, nowhere]}}]}") for name in ("p", "q")]
    found = await shown(world(WEB, WEB_POD, SLICE, entry, other, routes[0], is_east_west_gateway[0]))
    assert found["links"] == [
        {"from": "namespace b", "to": f"service {HOST}", "kind": "policy", "by": "", "count": 1},
        {"from": "service more.example", "to": f"service {HOST}", "kind": "route", "by": "b/r", "count": 1},
        {"from": "service shop.example", "to": f"service {HOST}", "kind": "route", "by": "b/r", "count": 1},
    ]
    assert (await shown(world(WEB, WEB_POD, SLICE, entry, other, routes[1])))["links"] == []
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(WHOLE)]
    folded = await shown(world(WEB, WEB_POD, SLICE, IDLE, entry, other, routes[0], *is_east_west_gateway, *many))
    assert folded["links"] == [
        {"from": "namespace b", "to": "namespace a", "kind": "policy", "by": "", "count": 1},
        {"from": "namespace b", "to": "namespace a", "kind": "route", "by": "b/r", "count": 2},
    ]


async def test_of_many_services_those_of_the_namespaces_that_are_asked_for() -> None:
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(WHOLE)]
    caller = make("ServiceEntry", "b", "{hosts: [b.example], ports: [{name: http, number: 80}], resolution: NONE}", "b")
    mesh = world(WEB, WEB_POD, SLICE, caller, policy("p", "{from: [{source: {namespaces: [b]}}]}"), *many)
    folded = await shown(mesh)
    assert services(folded) == {}
    assert [(link["from"], link["to"], link["kind"]) for link in folded["links"]] == [
        ("namespace b", "namespace a", "policy")
    ]
    assert set(services(await shown(mesh, "b"))) == {"b.example"}


def connection(name: str, **watches: FakeWatch) -> FakeConnection:
    namespace = name.partition(".")[2]
    known = proxy("sidecar", name.partition(".")[0], namespace, "10.0.0.1")
    return FakeConnection(f"{name}-1", name, known, subscriptions={BY_SHORT_NAME[t]: w for t, w in watches.items()})


@pytest.mark.parametrize(
    ("watch", "state", "error"),
    [
        (FakeWatch(), "synced", ""),
        (FakeWatch(nonce_sent="n2"), "waiting", ""),
        (FakeWatch(nonce_sent="", nonce_acked="", sent_at=0.0), "synced", ""),
        (FakeWatch(nonce_sent="n2", last_error="no"), "error", "cds: no"),
    ],
)
def test_a_proxy_is_synced_waiting_or_refusing(watch: FakeWatch, state: str, error: str) -> None:
    row, sent, _ = snapshot_stream(connection("web-0.a", cds=watch))
    assert (row.name, row.namespace, row.state, row.error, sent) == ("web-0", "a", state, error, watch.sent_at)


def test_a_proxy_waits_since_the_oldest_response_that_it_has_not_taken() -> None:
    watches = {
        "cds": FakeWatch(sent_at=5.0),
        "lds": FakeWatch(nonce_sent="n2", sent_at=4.0),
        "rds": FakeWatch(nonce_sent="n2", sent_at=3.0),
    }
    row, sent, _ = snapshot_stream(connection("web-0.a", **watches))
    assert (row.waits_since, sent) == (3.0, 5.0)
    again = snapshot_stream(connection("web-0.a", **watches), row)
    assert again.row is row
    watches["rds"].nonce_acked = "n2"
    assert snapshot_stream(connection("web-0.a", **watches), row).row == row._replace(waits_since=4.0)


async def test_only_what_changed_is_told() -> None:
    a, b, c = (connection(name, cds=FakeWatch()) for name in ("a.x", "b.x", "c.x"))
    fleet = FakeFleet(a, b)
    rows = ProxyRows(fleet)
    assert [row.name for row in (await rows.poll()).changed] == ["a", "b"]
    assert rows.waiting == 0
    a.subscriptions[BY_SHORT_NAME["cds"]].nonce_sent = "n2"
    a.activity += 1
    fleet.current = [a, c]
    found = await rows.poll()
    assert ([(row.name, row.state) for row in found.changed], found.gone, rows.waiting) == (
        [("a", "waiting"), ("c", "synced")],
        ["b.x-1"],
        1,
    )
    assert [row["id"] for row in rows.plain()] == ["a.x-1", "c.x-1"]
    fleet.current = []
    assert (await rows.poll()).gone == ["a.x-1", "c.x-1"]
    assert rows.waiting == 0


async def test_a_proxy_with_which_nothing_was_exchanged_is_not_looked_at() -> None:
    quiet = connection("a.x", cds=FakeWatch())
    rows = ProxyRows(FakeFleet(quiet))
    await rows.poll()
    quiet.subscriptions = {}
    assert (await rows.poll()).changed == []
    quiet.activity += 1
    assert await rows.poll() == ([], [], 1)


def test_certificates_of_secrets_are_there_without_their_keys() -> None:
    leaf = issued.root().issue(decode_csr(issued.csr()), [issued.IDENTITY], issued.DAY, issued.NOW)
    data = {"tls.crt": certificate_pem(leaf), "tls.key": b"SECRET", "ca.crt": b"no certificate"}
    coded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "a"}, "data": coded}
    made = world(secret)
    held = certificates.material(made.mesh)
    begins, ends = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    assert certificates.validity(held) == [certificates.Validity("Secret a/web", begins, ends)]
    assert b"SECRET" not in b"".join(item.pem for item in held)


def test_of_very_many_certificates_the_first_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    coded = {name: base64.b64encode(name.encode()).decode() for name in ("tls.crt", "tls.key", "ca.crt")}
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "a"}, "data": coded}
        for name in ("x", "y")
    ]
    held = [certificates.Material(f"Secret a/{name}", pem) for name in ("x", "y") for pem in (b"tls.crt", b"ca.crt")]
    made = world(*secrets)
    for most in range(len(held) + 1):
        monkeypatch.setattr(certificates, "MOST", most)
        assert certificates.material(made.mesh) == held[:most]


def test_the_root_is_there_once_this_process_signs() -> None:
    metrics = Metrics()
    assert certificates.of_authority(metrics) == []
    metrics.root_expires(1_900_000_000.0)
    assert certificates.of_authority(metrics) == [certificates.Validity("root of the mesh", 0.0, 1_900_000_000.0)]


@pytest.fixture(autouse=True)
def told_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are told what changed when a test says so."""
    monkeypatch.setattr(stream, "SECONDS", 3600.0)


async def test_a_proxy_that_has_taken_a_response_between_two_looks_was_reached() -> None:
    made = world(WEB)
    watch = FakeWatch()
    reading = connection("web-0.a", cds=watch)
    tells = EventStream(sources(made.mesh, reading))
    events = events_of(tells)
    await anext(events)
    watch.sent_at += 1
    reading.activity += 1
    for reached in (1, 0):
        await tells.tell()
        _, told = event(await anext(events))
        assert told["reached"] == reached
    await events.aclose()


async def test_pages_are_told_again_and_again_also_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream, "SECONDS", 0.0)
    tells = EventStream(sources(world(WEB).mesh))
    looked, look = 0, tells.graph.get

    async def fail_once() -> Any:
        nonlocal looked
        looked += 1
        if looked == 2:
            raise ZeroDivisionError
        return await look()

    monkeypatch.setattr(tells.graph, "get", fail_once)
    events = events_of(tells)
    async with asyncio.timeout(30):
        assert [event(await anext(events))[0] for _ in range(4)] == ["state", "change", "change", "change"]
    assert looked >= 4
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["cannot update the dashboard"]
    await events.aclose()


async def test_events_begin_with_the_state_and_go_on_with_what_changed() -> None:
    made = world(WEB)
    seen = sources(made.mesh, connection("web-0.a", cds=FakeWatch()))
    tells = EventStream(seen)
    events = events_of(tells)
    kind, told = event(await anext(events))
    assert (kind, [row["state"] for row in told["proxies"]]) == ("state", ["synced"])
    assert isinstance(seen.fleet, FakeFleet)
    seen.fleet.current = []
    made.apply_objects(IDLE)
    await tells.tell()
    kind, told = event(await anext(events))
    assert (kind, told["gone"], told["proxies"], told["revision"]) == ("change", ["web-0.a-1"], [], made.mesh.revision)
    await tells.tell()
    kind, told = event(await anext(events))
    assert kind == "change"
    assert not {"proxies", "problems", "revision"} & told.keys()
    await events.aclose()


async def test_a_picture_is_told_of_when_it_is_another_one() -> None:
    made = world(WEB, WEB_POD, SLICE)
    tells = EventStream(sources(made.mesh))
    events = events_of(tells)
    await anext(events)

    async def told() -> dict[str, Any]:
        await tells.tell()
        return event(await anext(events))[1]

    assert "picture" in await told()
    assert "picture" not in await told()
    rule = make("DestinationRule", "r", "{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}", "a")
    for change, shows in ((rule, False), (IDLE, True), (route("[mesh]"), True), (policy("p", "{}", "DENY"), True)):
        made.apply_objects(change)
        found = await told()
        assert (found["revision"], "picture" in found) == (made.mesh.revision, shows)
        kept, fresh = await tells.graph.get(), await CachedGraph(made.mesh).get()
        assert (sorted(kept.services), kept.gateways, sorted(kept.links)) == (
            sorted(fresh.services),
            fresh.gateways,
            sorted(fresh.links),
        )
    await events.aclose()


async def test_pages_are_told_of_a_picture_that_one_of_them_has_asked_for_in_between() -> None:
    made = world(WEB)
    tells = EventStream(sources(made.mesh))
    events = events_of(tells)
    await anext(events)
    await tells.tell()
    await anext(events)
    made.apply_objects(IDLE)
    await tells.graph.get()
    await tells.tell()
    assert "picture" in event(await anext(events))[1]
    await events.aclose()


async def test_a_kept_picture_follows_what_comes_and_goes() -> None:
    made = world(WEB, route("[mesh]"))
    kept = CachedGraph(made.mesh)
    kept.keep()
    assert [len(part) for part in await kept.get()] == [1, 0, 1]
    gateway = make("Gateway", "g", "{servers: [{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]}", "a")
    made.apply_objects(IDLE, gateway)
    assert [len(part) for part in await kept.get()] == [2, 1, 1]
    made.set(dict.fromkeys(rows_of([WEB, route("[mesh]")])))
    found = await kept.get()
    assert ([facts.host for facts in found.services], found.links) == (["idle.a.svc.cluster.local"], [])


async def test_nothing_of_a_picture_stays_when_nobody_looks() -> None:
    made = world(WEB, WEB_POD, SLICE, route("[mesh]"))
    tells = EventStream(sources(made.mesh))
    events = events_of(tells)
    made.mesh.collect()
    before = len(made.mesh)
    await anext(events)
    await tells.tell()
    assert len(made.mesh) > before
    await events.aclose()
    made.mesh.collect()
    assert len(made.mesh) == before


async def test_a_second_page_takes_nothing_from_the_first() -> None:
    seen = sources(world().mesh)
    tells = EventStream(seen)
    first = events_of(tells)
    await anext(first)
    assert isinstance(seen.fleet, FakeFleet)
    seen.fleet.current = [connection("web-0.a", cds=FakeWatch())]
    second = events_of(tells)
    await anext(second)
    await tells.tell()
    assert [len(event(await anext(events))[1]["proxies"]) for events in (first, second)] == [1, 1]
    await first.aclose()
    await second.aclose()


async def test_nothing_is_looked_at_while_no_page_is_open() -> None:
    tells = EventStream(sources(world().mesh))
    first, second = events_of(tells), events_of(tells)
    await anext(first)
    await anext(second)
    await first.aclose()
    assert tells._ticking is not None
    await second.aclose()
    assert tells._ticking is None


async def test_a_page_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOWEST", 2)
    tells = EventStream(sources(world().mesh))
    slow, quick = events_of(tells), events_of(tells)
    await anext(slow)
    await anext(quick)
    for _ in range(3):
        await tells.tell()
        await anext(quick)
    assert [event(e)[0] async for e in slow] == ["change", "change"]
    await quick.aclose()


async def test_closing_ends_every_page() -> None:
    tells = EventStream(sources(world().mesh))
    events = events_of(tells)
    await anext(events)
    tells.close()
    assert [e async for e in events] == [b""]


def events_of(stream: EventStream) -> Any:
    """Return the generator of a client's events."""
    return stream.events()


def event(text: bytes) -> tuple[str, dict[str, Any]]:
    head, data = text.decode().strip().split("\n")
    return head.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_the_page_and_its_files_need_nothing_from_elsewhere() -> None:
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
async def test_others_must_say_who_they_are(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(debug_application, "is_loopback", lambda request: False)
    async with (
        TestClient(TestServer(application(sources(world().mesh)))) as client,
        client.get(routes.PATH + path) as response,
    ):
        assert response.status == 401


async def test_closing_ends_a_page_that_has_not_read_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOWEST", 2)
    tells = EventStream(sources(world().mesh))
    events = events_of(tells)
    await anext(events)
    for _ in range(2):
        await tells.tell()
    tells.close()
    found = [e async for e in events]
    assert [e and event(e)[0] for e in found] == ["change", b""]
    await events.aclose()


async def test_a_change_says_how_much_was_sent_since_the_last_one() -> None:
    seen = sources(world().mesh)
    tells = EventStream(seen)
    events = events_of(tells)
    await anext(events)
    told = []
    for responses, size in ((3, 500), (0, 0)):
        seen.metrics.responses += responses
        seen.metrics.response_bytes += size
        await tells.tell()
        told.append(event(await anext(events))[1])
    assert [(each["responses"], each["bytes"]) for each in told] == [(3, 500), (0, 0)]
    await events.aclose()


async def test_a_proxy_waits_until_it_has_acknowledged_and_those_that_left_wait_no_more() -> None:
    watches = {name: FakeWatch(nonce_sent="n2") for name in ("a.x", "b.x", "c.x")}
    open_ones = {name: connection(name, cds=watch) for name, watch in watches.items()}
    fleet = FakeFleet(*open_ones.values(), connection("d.x", cds=FakeWatch()))
    rows, waiting = ProxyRows(fleet), []
    await rows.poll()
    waiting.append(rows.waiting)
    watches["a.x"].nonce_acked = "n2"
    open_ones["a.x"].activity += 1
    await rows.poll()
    waiting.append(rows.waiting)
    fleet.current = [each for each in fleet.current if each.id != "b.x-1"]
    await rows.poll()
    waiting.append(rows.waiting)
    assert waiting == [3, 2, 1]


async def test_problems_are_told_of_when_they_change_or_when_so_many_are_shown_with_the_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "PROBLEMS", 2)
    made = world(WEB)
    known: list[Problem] = []
    tells = EventStream(sources(made.mesh, problems=known))
    events = events_of(tells)
    await anext(events)

    async def told() -> list[str] | None:
        await tells.tell()
        found = event(await anext(events))[1].get("problems")
        return [p["code"] for p in found] if found is not None else None

    def add(code: str) -> None:
        known.insert(
            0, Problem(code=code, object=ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web"), message="m")
        )

    for code, expected in (("one", ["one"]), ("two", ["two", "one"]), ("three", None)):
        add(code)
        assert await told() == expected
    made.apply_objects(IDLE)
    assert await told() == ["three", "two"]
    await events.aclose()
