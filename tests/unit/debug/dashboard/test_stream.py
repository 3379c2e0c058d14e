"""Events of the dashboard."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.dashboard import stream
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.stream import EventStream
from testing.mesh.debug_server import FakeFleet, FakeWatch, sources
from testing.mesh.objects import make, world
from tests.unit.debug.dashboard.test_fleet import connection
from tests.unit.debug.dashboard.test_graph import IDLE, SLICE, WEB, WEB_POD, policy, route


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
