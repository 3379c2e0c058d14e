"""Measurements of the last hour."""

from __future__ import annotations

import collections

import pytest

from pilot.debug import history
from pilot.debug.history import KEPT, History
from pilot.lib.metrics.metrics import Metrics
from testing.mesh.debug_server import FakeConnection, FakeWatch
from tests.unit.debug.dashboard.test_fleet import connection


def test_points_count_streams_by_state() -> None:
    streams = [
        connection("a.x", cds=FakeWatch()),
        connection("b.x", cds=FakeWatch(), lds=FakeWatch(nonce_sent="n2")),
        connection("c.x", cds=FakeWatch(nonce_sent="n2", last_error="no"), lds=FakeWatch(nonce_sent="n2")),
    ]
    past, metrics = History(lambda: 7.0), Metrics()
    metrics.responses, metrics.response_bytes = 5, 900
    collections.deque(past.sample(streams, metrics, 4), 0)
    (point,) = past.points
    assert (point.time, point.proxies, point.waiting, point.refusing) == (7.0, 3, 1, 1)
    assert (point.responses, point.bytes, point.changes, past.number) == (5, 900, 4, 1)
    assert point.memory > 0


def test_an_hour_is_kept() -> None:
    past = History()
    for _ in range(KEPT + 2):
        collections.deque(past.sample([], Metrics(), 0), 0)
    assert (len(past.points), past.number) == (KEPT, KEPT + 2)


def test_many_streams_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEP", 2)
    streams: list[FakeConnection] = [connection(f"s{n}.x") for n in range(5)]
    assert len(list(History().sample(streams, Metrics(), 0))) == 2
