"""A gateway between networks under random edits of a whole mesh, whose services are all global: it is sent what a fresh control plane would send."""

from __future__ import annotations

import random

from pilot.lib.xds_types import CLUSTER
from testing.edits.mesh_edits import difference, draw_variant, rows_at, rows_of_state, snapshot, start
from testing.edits.mesh_slots import SLOTS
from testing.mesh.world import World, proxy

FLAGS = {"PILOT_ENABLE_AMBIENT": "true", "AMBIENT_ENABLE_MULTI_NETWORK": "true"}
LABELS = {
    "gateway.networking.k8s.io/gateway-name": "passage",
    "gateway.istio.io/managed": "istio.io-eastwest-controller",
}
GATEWAY = proxy("waypoint", "passage-0", "istio-system", "10.1.0.99", LABELS, NETWORK="net1")
STEPS = 60


def sent(world: World, connected: str) -> dict[str, dict[str, dict[str, bytes]]]:
    return snapshot(world, [connected])


def test_incremental_equals_scratch(seed: int) -> None:
    mesh, everything = next(
        (n, v)
        for n, slot in enumerate(SLOTS)
        for v, variant in enumerate(slot.variants)
        if "scope: GLOBAL" in str(variant)
    )
    choose = random.Random(f"passages {seed}")
    state = [everything if slot == mesh else draw_variant(choose, slot) for slot in range(len(SLOTS))]
    world = start(rows_of_state(state), FLAGS)
    gateway = world.connect(GATEWAY)
    sent(world, gateway)
    passed: set[str] = set()
    for step in range(STEPS):
        slot = choose.choice([number for number in range(len(SLOTS)) if number != mesh])
        old, state[slot] = state[slot], draw_variant(choose, slot)
        world.set(dict.fromkeys(rows_at(slot, old)) | dict(rows_at(slot, state[slot])))
        scratch = start(rows_of_state(state), FLAGS)
        got, want = sent(world, gateway), sent(scratch, scratch.connect(GATEWAY))
        assert not difference(got, want), f"step {step}, after {SLOTS[slot].name}"
        assert not world.failures
        passed.update(name for name in want[gateway][CLUSTER] if name.startswith("inbound-vip|"))
    assert len(passed) > 3
