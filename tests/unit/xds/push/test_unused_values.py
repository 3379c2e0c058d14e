"""Many unused values are freed before the next sweep, so that states of a large object do not add up."""

from __future__ import annotations

from typing import cast

import pytest

from pilot.derive import derived
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.discovery import COLLECT_STEP, MANY_UNUSED, Discovery
from testing.clients.ads import plan
from testing.mesh.number_derivations import NumberDatabase, keys, number, numbers


@pytest.mark.parametrize(("count", "is_freed"), [(MANY_UNUSED // 4, False), (2 * COLLECT_STEP, True)])
def test_many_unused_values_are_freed_in_steps(count: int, is_freed: bool) -> None:
    db = NumberDatabase(count)
    discovery = Discovery(cast(Mesh, db), Metrics(), plan)
    db.unwatch(db.watch(numbers))
    db.set("n00000", -1)
    steps = len(list(discovery.free_many_in_steps()))
    assert (steps > 1, len(db) == 0) == (is_freed, is_freed)


@derived
def total(db: NumberDatabase) -> int:
    return sum(number(db, key) or 0 for key in keys(db) if key > "n00013")


@pytest.mark.parametrize(("count", "is_freed"), [(100, False), (MANY_UNUSED + 20, True)])
def test_value_with_many_inputs_counts_as_many(count: int, is_freed: bool) -> None:
    db = NumberDatabase(count)
    discovery = Discovery(cast(Mesh, db), Metrics(), plan)
    watched = db.watch(total)
    list(discovery.sweep_in_steps())
    db.unwatch(watched)
    list(discovery.free_many_in_steps())
    assert (len(db) == 0) == is_freed
