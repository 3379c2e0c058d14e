"""Tests of the admission rate of streams."""

from __future__ import annotations

import asyncio

import pytest

from pilot.xds.admission import Admission, stream_rate


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
        results.append(await admission.admit("10.0.0.1"))
    assert (results, recorded_delays) == (admitted, delays)


@pytest.mark.parametrize(
    ("setting", "cpus", "rate"),
    [(0.0, 1, 20.0), (0.0, 2, 25.0), (0.0, 4, 35.0), (0.0, 32, 100.0), (2.5, 4, 2.5), (-1.0, 4, 0.0)],
)
def test_rate_of_zero_depends_on_the_number_of_cpus(setting: float, cpus: int, rate: float) -> None:
    assert stream_rate(setting, cpus) == rate
    assert stream_rate(0.0) >= 20.0


async def test_flood_of_streams_of_one_caller_does_not_use_up_the_rate_of_others() -> None:
    admission = Admission(100.0, sleep=lambda _: asyncio.sleep(0))
    flood = [asyncio.create_task(admission.admit("10.0.0.1")) for _ in range(1000)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(admission.admit(f"10.0.1.{number}")) for number in range(20)]
    assert await asyncio.gather(*others) == [True] * 20
    assert False in await asyncio.gather(*flood)
