"""Long derivations are computed in slices."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pilot.derive import derived
from pilot.xds.push.derivation_slices import in_slices
from testing.mesh.number_derivations import NumberDatabase, number, numbers


async def test_other_tasks_run_while_a_long_gather_is_computed() -> None:
    db = NumberDatabase(200)
    runs: list[int] = []

    async def wait() -> None:
        runs.append(db.runs)
        await asyncio.sleep(0)

    assert len(await in_slices(db, lambda: numbers(db), wait, slice_seconds=0.0)) == 199
    assert len(runs) == 201, "without time, each slice computes one item, the list of keys or the gather"
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


async def test_slice_is_not_extended_when_a_derivation_is_complete() -> None:
    @derived
    def outer(db: NumberDatabase, key: str) -> int | None:
        return inner(db, key)

    @derived
    def inner(db: NumberDatabase, key: str) -> int | None:
        return number(db, key)

    db = NumberDatabase(10)
    runs: list[int] = []

    async def wait() -> None:
        runs.append(db.runs)

    assert await in_slices(db, lambda: outer(db, "n00003"), wait, slice_seconds=0.0) == 3
    assert all(after - before <= 1 for before, after in itertools.pairwise([*runs, db.runs])), runs
