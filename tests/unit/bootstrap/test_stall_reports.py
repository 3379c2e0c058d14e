"""Stalls of the event loop are counted and attributed to derivations and objects."""

from __future__ import annotations

import sys
import time

import pytest

from pilot.bootstrap.stall_reports import build_loop_watchdog, find_cause
from pilot.derive import Database, derived
from pilot.lib.loop_watchdog import Cause, Stall, stack
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.model.service import ServiceRef

recorded_causes: list[Cause] = []


@derived
def inner(db: Database, ref: ServiceRef, number: int) -> None:
    recorded_causes.append(find_cause(list(stack(sys._getframe()))))


@derived
def outer(db: Database) -> None:
    inner(db, ServiceRef("reviews.example.com", "tenant"), 9080)


def test_stall_is_attributed_to_the_outer_derivation_and_the_innermost_object() -> None:
    recorded_causes.clear()
    outer(Database())
    assert recorded_causes == [Cause("outer", "reviews.example.com tenant 9080")]


def test_stalls_are_counted_and_long_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    watchdog = build_loop_watchdog(metrics)
    for seconds in (0.1, 2.0):
        watchdog._record(Stall(seconds, Cause("outbound clusters", "reviews.example.com"), time.time()))
    assert 'pilot_event_loop_stall_seconds_count{work="outbound clusters"} 2' in metrics.exposition().decode()
    assert [record.getMessage() for record in caplog.records] == [
        "the event loop was blocked for 2.00 s by outbound clusters (reviews.example.com)"
    ]
