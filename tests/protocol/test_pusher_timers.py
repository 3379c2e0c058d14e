"""Timers of the pusher: checks of slow writes, and releases of held resources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.push import pusher as pusher_module
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.pusher import CHECK_INTERVAL, HOLD, Pusher
from pilot.xds.push.write_limiter import Write
from testing.clients.scripted_stream import delta

PROXY = Proxy(type=NodeType.SIDECAR, id="web-0.a", ips=("10.0.0.1",), dns_domain="", namespace="a", metadata={})


def make_connection(identity: str = "", **metadata: str) -> Connection:
    proxy = msgspec.structs.replace(PROXY, identity=identity, metadata=metadata)
    return Connection(3, "key", proxy, "10.0.0.1:99", 0.0, delta(), {})


class FakeLoop:
    """The timers of a fake event loop."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.timers.append((delay, callback))

    def ring(self) -> float:
        ((delay, callback),) = self.timers
        self.timers.clear()
        callback()
        return delay


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    fake_loop = FakeLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: fake_loop)
    return fake_loop


def make_pusher() -> Pusher:
    metrics = Metrics()
    return Pusher(Discovery(Mesh(), metrics, proxy_plan), metrics)


def test_writes_are_checked_while_in_progress(loop: FakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(pusher_module, "time", SimpleNamespace(monotonic=lambda: now))
    pusher, aborted = make_pusher(), []
    write = Write(10, "peer", lambda: aborted.append("aborted"), lambda: 0)
    assert pusher.write_limiter.try_start(write)
    pusher._schedule_check()
    pusher._schedule_check()
    for elapsed, expected in ((0.05, 0.05), (0.1, 0.1), (5.0, 0.1), (0.0, 0.0)):
        before, now = pusher.write_limiter.time, now + elapsed
        assert loop.ring() == CHECK_INTERVAL
        assert pusher.write_limiter.time - before == pytest.approx(expected)
    pusher.write_limiter.time += 60.0
    loop.ring()
    assert (aborted, loop.timers) == (["aborted"], [])
    assert "pilot_xds_write_timeout 1" in pusher._metrics.exposition().decode().splitlines()
    pusher._schedule_check()
    assert [delay for delay, _ in loop.timers] == [CHECK_INTERVAL]


def test_held_resources_share_one_timer(loop: FakeLoop) -> None:
    pusher, releases = make_pusher(), list[Any]()

    def make_holder(name: str, owes: bool) -> Connection:
        connection: Any = make_connection()
        connection.session = SimpleNamespace(release=lambda: releases.append(name), owes_anything=lambda: owes)
        connection.mark_dirty = lambda now, reasons: releases.append(reasons)
        return connection

    first, second, third = make_holder("first", True), make_holder("second", False), make_holder("third", False)
    pusher.release_soon(first)
    pusher.release_soon(second)
    assert (loop.ring(), releases) == (HOLD, [])
    pusher.release_soon(third)
    assert (loop.ring(), releases) == (HOLD, ["first", {"depdendentresource": 1}, "second"])
    assert (loop.ring(), releases[3:], loop.timers) == (HOLD, ["third"], [])
    pusher.release_soon(first)
    assert [delay for delay, _ in loop.timers] == [HOLD]
