"""Events of the dashboard."""

from __future__ import annotations

import asyncio
import collections
import json
from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.debug import reuse
from pilot.debug.changes import ChangedObject
from pilot.debug.dashboard import stream
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.stream import EventStream
from testing.mesh.debug_server import FakeFleet, FakeWatch, sources
from testing.mesh.objects import make, world
from tests.unit.debug.dashboard.test_fleet import connection
from tests.unit.debug.dashboard.test_graph import IDLE, SLICE, WEB, WEB_POD, policy, route


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
    assert (kind, data["fleet"]["synced"], data["problems"]["items"], data["changes"]) == ("state", 1, [], [])
    assert isinstance(page_sources.fleet, FakeFleet)
    page_sources.fleet.current = []
    mesh_world.apply_objects(IDLE)
    await events_stream.tell()
    kind, data = event(await anext(events))
    assert (kind, data["fleet"]["proxies"], data["revision"]) == ("change", 0, mesh_world.mesh.revision)
    await events_stream.tell()
    kind, data = event(await anext(events))
    assert kind == "change"
    assert not {"fleet", "problems", "revision", "changes", "graph", "point"} & data.keys()
    await events.aclose()


async def test_refused_proxy_has_its_services() -> None:
    mesh_world = world(WEB, WEB_POD, SLICE)
    watch = FakeWatch(nonce_sent="n2", last_error="no", rejected_since=5.0)
    client = connection("web-0.a", lds=watch)
    client.proxy_key = mesh_world.connect(client.proxy)
    events = events_of(EventStream(sources(mesh_world.mesh, client)))
    (row,) = event(await anext(events))[1]["fleet"]["unhealthy"]
    assert (row["state"], row["error"], row["error_since"]) == ("refused", "lds: no", 5.0)
    assert row["services"] == [["web.a.svc.cluster.local", "a"]]
    await events.aclose()


async def test_recorded_changes_and_points_are_sent_once() -> None:
    page_sources = sources(world(WEB).mesh)
    page_sources.changes.record(1, [ChangedObject("add", "", "Service", "a", "web", "f.yaml")], 1, 0, 0)
    events_stream = EventStream(page_sources)
    events = events_of(events_stream)
    data = event(await anext(events))[1]
    assert [change["objects"][0]["name"] for change in data["changes"]] == ["web"]
    page_sources.changes.record(2, [], 0, 3, 0)
    collections.deque(page_sources.history.sample([], page_sources.metrics, 2), 0)
    await events_stream.tell()
    data = event(await anext(events))[1]
    assert ([change["endpoints"] for change in data["changes"]], data["point"][-1]) == ([3], 2)
    await events_stream.tell()
    assert not {"changes", "point"} & event(await anext(events))[1].keys()
    await events.aclose()


async def test_requests_at_the_same_time_share_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "REUSE", 1e9)
    monkeypatch.setattr(reuse, "MAX_REUSE", 1e9)
    page_sources = sources(world(WEB).mesh, connection("web-0.a", cds=FakeWatch()))
    events_stream = EventStream(page_sources)
    first = await events_stream.context()
    assert isinstance(page_sources.fleet, FakeFleet)
    page_sources.fleet.current = []
    assert await events_stream.context() == first
    assert await EventStream(page_sources).context() != first


async def test_changed_graph_is_announced() -> None:
    mesh_world = world(WEB, WEB_POD, SLICE)
    events_stream = EventStream(sources(mesh_world.mesh))
    events = events_of(events_stream)
    await anext(events)

    async def next_data() -> dict[str, Any]:
        await events_stream.tell()
        return event(await anext(events))[1]

    await next_data()
    assert "graph" not in await next_data()
    rule = make("DestinationRule", "r", "{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}", "a")
    for change, has_graph in (
        (rule, False),
        (IDLE, True),
        (route("[mesh]"), True),
        (policy("p", "{}", "DENY"), True),
    ):
        mesh_world.apply_objects(change)
        data = await next_data()
        assert (data["revision"], "graph" in data) == (mesh_world.mesh.revision, has_graph)
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
    assert "graph" in event(await anext(events))[1]
    await events.aclose()


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
    assert [event(await anext(events))[1]["fleet"]["proxies"] for events in (first, second)] == [1, 1]
    await first.aclose()
    await second.aclose()


async def test_updates_stop_without_clients() -> None:
    events_stream = EventStream(sources(world().mesh))
    first, second = events_of(events_stream), events_of(events_stream)
    await anext(first)
    await anext(second)
    await first.aclose()
    assert "dashboard events" in {task.get_name() for task in asyncio.all_tasks()}
    await second.aclose()
    await asyncio.sleep(0)
    assert "dashboard events" not in {task.get_name() for task in asyncio.all_tasks()}


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


async def test_problems_are_sent_on_change_up_to_a_limit_and_errors_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PROBLEMS", 2)
    problems: list[Problem] = []
    events_stream = EventStream(sources(world(WEB).mesh, problems=problems))
    events = events_of(events_stream)
    await anext(events)

    async def next_problems() -> Any:
        await events_stream.tell()
        entries = event(await anext(events))[1].get("problems")
        return ([p["code"] for p in entries["items"]], entries["counts"]["errors"]) if entries is not None else None

    def add(code: str, severity: Severity) -> None:
        ref = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web")
        problems.append(Problem(code=code, object=ref, message="m", severity=severity))

    for code, severity, expected in (
        ("one", Severity.WARNING, (["one"], 0)),
        ("two", Severity.ERROR, (["two", "one"], 1)),
        ("three", Severity.ERROR, (["two", "three"], 2)),
    ):
        add(code, severity)
        assert await next_problems() == expected
        assert await next_problems() is None
    await events.aclose()
