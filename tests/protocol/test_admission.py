"""How many streams are let in."""

from __future__ import annotations

import pytest

from pilot.xds.admission import Admission


@pytest.mark.parametrize(
    ("rate", "arrivals", "admitted", "slept"),
    [
        (0.0, [0, 0, 0], [True, True, True], []),
        (1.0, [0, 0, 0], [True, True, False], [1.0]),
        (2.0, [0, 0, 0, 0], [True, True, True, False], [0.5, 1.0]),
        (1.0, [0, 5, 5], [True, True, True], [1.0]),
    ],
)
async def test_admission(rate: float, arrivals: list[float], admitted: list[bool], slept: list[float]) -> None:
    now, sleeps = 0.0, []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)

    gate, got = Admission(rate, lambda: now, sleep), []
    for arrival in arrivals:
        now = arrival
        got.append(await gate.admit())
    assert (got, sleeps) == (admitted, slept)
