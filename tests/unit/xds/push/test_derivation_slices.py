"""Long derivations are computed in slices."""

from __future__ import annotations

import asyncio

import pytest

from pilot.xds.push.derivation_slices import in_slices
from testing.mesh.number_derivations import NumberDatabase, numbers


async def test_other_tasks_run_while_a_long_gather_is_computed() -> None:
    db = NumberDatabase(200)
    runs: list[int] = []

    async def wait() -> None:
        runs.append(db.runs)
        await asyncio.sleep(0)

    assert len(await in_slices(db, lambda: numbers(db), wait, slice_seconds=0.0)) == 199
    assert len(runs) == 200, "without time, each slice computes one item"
    db.collect()
    assert not list(db.live_nodes()), "nothing is watched afterwards"


async def test_short_derivations_are_not_interrupted() -> None:
    async def wait() -> None:
        raise AssertionError

    db = NumberDatabase(10)
    assert len(await in_slices(db, lambda: numbers(db), wait, slice_seconds=600.0)) == 10


async def test_cancelled_computation_watches_nothing() -> None:
    db = NumberDatabase(10)

    async def wait() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await in_slices(db, lambda: numbers(db), wait, slice_seconds=0.0)
    db.collect()
    assert not list(db.live_nodes())
