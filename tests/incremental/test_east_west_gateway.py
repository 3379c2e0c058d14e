"""Random edits of a mesh with global services: an east-west gateway gets the configuration of a fresh start."""

from __future__ import annotations

import random

from pilot.lib.xds_types import CLUSTER
from testing.edits.mesh_edits import difference, draw_variant, rows_at, rows_of_state, snapshot, start
from testing.edits.mesh_slots import SLOTS
from testing.mesh.world import World, proxy

FLAGS = {"PILOT_ENABLE_AMBIENT": "true", "AMBIENT_ENABLE_MULTI_NETWORK": "true"}
LABELS = {
    "gateway.networking.k8s.io/gateway-name": "east-west",
    "gateway.istio.io/managed": "istio.io-eastwest-controller",
}
GATEWAY = proxy("waypoint", "east-west-0", "istio-system", "10.1.0.99", LABELS, NETWORK="net1")
STEPS = 60


def gateway_snapshot(world: World, node_id: str) -> dict[str, dict[str, dict[str, bytes]]]:
    return snapshot(world, [node_id])


def test_incremental_equals_scratch(seed: int) -> None:
    mesh_slot, global_variant = next(
        (n, v)
        for n, slot in enumerate(SLOTS)
        for v, variant in enumerate(slot.variants)
        if "scope: GLOBAL" in str(variant)
    )
    rng = random.Random(f"east-west {seed}")
    state = [global_variant if slot == mesh_slot else draw_variant(rng, slot) for slot in range(len(SLOTS))]
    world = start(rows_of_state(state), FLAGS)
    gateway = world.connect(GATEWAY)
    gateway_snapshot(world, gateway)
    vip_clusters: set[str] = set()
    for step in range(STEPS):
        slot = rng.choice([number for number in range(len(SLOTS)) if number != mesh_slot])
        old, state[slot] = state[slot], draw_variant(rng, slot)
        world.set(dict.fromkeys(rows_at(slot, old)) | dict(rows_at(slot, state[slot])))
        scratch = start(rows_of_state(state), FLAGS)
        actual, expected = gateway_snapshot(world, gateway), gateway_snapshot(scratch, scratch.connect(GATEWAY))
        assert not difference(actual, expected), f"step {step}, after {SLOTS[slot].name}"
        assert not world.failures
        vip_clusters.update(name for name in expected[gateway][CLUSTER] if name.startswith("inbound-vip|"))
    assert len(vip_clusters) > 3
