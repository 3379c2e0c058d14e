"""Slices of computations."""

from __future__ import annotations

import time

import pytest

from pilot.lib.time_slice import time_slice


@pytest.mark.parametrize(
    ("calls", "expected"),
    [([0.004, 0.009, 0.01], [False, False, True]), ([0.03, 0.034, 0.036], [False, False, True])],
    ids=["short first part", "long first part"],
)
def test_slice_ends_in_time_but_makes_progress(
    monkeypatch: pytest.MonkeyPatch, calls: list[float], expected: list[bool]
) -> None:
    times = iter([0.0, *calls])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    is_over = time_slice(0.01)
    assert [is_over() for _ in calls] == expected
