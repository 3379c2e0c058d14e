"""The record of the last changes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pilot.debug import changes
from pilot.debug.changes import ChangedObject, ChangeLog

WEB = ChangedObject("update", "", "Service", "a", "web", "mesh.yaml")


class Outcome(NamedTuple):
    proxies: int = 3
    acknowledged: int = 1
    nacked: int = 0
    disconnected: int = 0
    seconds: float = 1.5
    seconds_99: float = 0.0
    unchanged: int = 0
    seconds_50: float = 0.0


def test_delivery_is_current_until_it_has_ended() -> None:
    log = ChangeLog({1: Outcome()}.get, lambda: 7.0)
    log.record(1, [WEB], 1, 0, 3)
    (change,) = log
    shown = log.plain(change)
    assert (shown["time"], shown["acknowledged"], shown["seconds"], shown["done"]) == (7.0, 1, 1.5, False)
    log.finish(1, Outcome(acknowledged=2, nacked=1, seconds_99=2.0))
    shown = log.plain(change)
    assert (shown["acknowledged"], shown["refused"], shown["p99"], shown["done"]) == (2, 1, 2.0, True)
    assert shown["objects"] == [WEB._asdict() | {"fields": []}]


def test_change_that_affects_no_proxy_is_done() -> None:
    log = ChangeLog()
    log.record(1, [WEB], 1, 0, 0)
    assert [log.plain(change)["done"] for change in log] == [True]


def test_number_of_changes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEPT", 2)
    monkeypatch.setattr(changes, "KEPT_ENDPOINTS", 1)
    log = ChangeLog()
    for number in range(4):
        log.record(number, [WEB], 1, 0, 0)
    for number in range(4, 8):
        log.record(number, [], 0, 5, 0)
    assert ([change.number for change in log], log.number) == ([7, 3, 2], 7)
    log.finish(0, Outcome())
