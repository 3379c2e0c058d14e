"""Tests of the admission rate of streams."""

from __future__ import annotations

import pytest

from pilot.xds.admission import Admission


@pytest.mark.parametrize(
    ("rate", "arrivals", "admitted", "delays"),
    [
        (0.0, [0, 0, 0], [True, True, True], []),
        (1.0, [0, 0, 0], [True, True, False], [1.0]),
        (2.0, [0, 0, 0, 0], [True, True, True, False], [0.5, 1.0]),
        (1.0, [0, 5, 5], [True, True, True], [1.0]),
    ],
)
async def test_admission_rate(rate: float, arrivals: list[float], admitted: list[bool], delays: list[float]) -> None:
    now, recorded_delays = 0.0, []

    async def sleep(seconds: float) -> None:
        recorded_delays.append(seconds)

    admission, results = Admission(rate, lambda: now, sleep), []
    for arrival in arrivals:
        now = arrival
        results.append(await admission.admit())
    assert (results, recorded_delays) == (admitted, delays)
