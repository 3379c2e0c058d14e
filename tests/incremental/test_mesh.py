"""Random edits of a whole mesh: after each, every proxy gets the configuration of a fresh start."""

from __future__ import annotations

import copy
import pathlib
import random
import re

import pytest

import pilot.envoy
import pilot.mesh
from pilot.config.catalogue import CATALOGUE
from pilot.config.kind import AnyKind, BaseKind
from pilot.config.kinds import gateway_api, istio, kubernetes
from testing.edits.mesh_edits import (
    FLAGS,
    draw_variant,
    effective_kinds,
    first_mismatch,
    random_scenario,
    rows_at,
    rows_of_state,
    snapshot,
    start,
)
from testing.edits.mesh_slots import SLOTS
from testing.mesh.world import rows_of

KINDS = {
    name: kind
    for module in (gateway_api, istio, kubernetes)
    for name, kind in vars(module).items()
    if isinstance(kind, BaseKind)
}
USED = re.compile(r"\b[A-Z][A-Z_]+\b(?!\.id\b)")

# Kinds that affect no resources of proxies yet. Remove a kind from this list once it does.
UNREAD = {"WorkloadGroup", "ProxyConfig", "UDPRoute"}


def read_kinds() -> set[AnyKind]:
    """Return the kinds that derivations use other than by name. Each needs a slot."""
    packages = (pathlib.Path(package.__path__[0]) for package in (pilot.mesh, pilot.envoy))
    words = {word for package in packages for path in package.rglob("*.py") for word in USED.findall(path.read_text())}
    return {KINDS[word] for word in words & KINDS.keys()}


@pytest.mark.parametrize("part", range(6))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    mismatch = first_mismatch(random_scenario(f"mesh {seed} {part}", 12, FLAGS if part % 2 else {}))
    assert mismatch is None, f"part {part}, after {mismatch[0]}: {mismatch[1]}"


def test_edits_affect_every_table() -> None:
    """Edits of each kind affect some proxy. The seeds are fixed, because this tests the generator."""
    tables, reached = {slot.table for slot in SLOTS}, set[str]()
    for number in range(8):
        reached |= effective_kinds(f"all tables {number}", FLAGS if number % 2 else {})
        if tables - reached == UNREAD:
            break
    assert tables - reached == UNREAD
    assert {kind.id.name for kind in CATALOGUE if kind in read_kinds()} <= tables


def test_irrelevant_edits_cause_no_runs() -> None:
    """Annotations and resource versions do not change rows, so nothing is evaluated."""
    rng = random.Random("no effect")
    state = [draw_variant(rng, slot) for slot in range(len(SLOTS))]
    world = start(rows_of_state(state), FLAGS)
    snapshot(world)
    runs = world.mesh.runs
    for slot, variant in enumerate(state):
        if SLOTS[slot].kind == "object" and rows_at(slot, variant):
            plain = copy.deepcopy(SLOTS[slot].variants[variant])
            plain["metadata"].setdefault("annotations", {})["example.com/touched"] = "now"
            plain["metadata"]["resourceVersion"] = "12345"
            rows = rows_of([plain], SLOTS[slot].cluster)
            assert world.mesh.commit([(world.mesh.tables[table], key, row) for (table, key), row in rows.items()]) == []
    assert world.mesh.runs == runs
