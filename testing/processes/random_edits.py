"""Random edits of a mesh whose control plane is a separate process."""

from __future__ import annotations

import asyncio
import random

from testing.edits.mesh_edits import draw_variant
from testing.edits.mesh_slots import SLOTS
from testing.processes.mesh_processes import RealMesh, base_state

PAUSES = (0.0, 0.0, 0.05, 0.3)  # shorter and longer than the debounce


async def edit(mesh: RealMesh, rng: random.Random) -> None:
    """Edit random slots, and pause."""
    for slot in rng.sample(range(len(SLOTS)), rng.choice((1, 1, 1, 2, 4))):
        await mesh.set(slot, draw_variant(rng, slot))
    await asyncio.sleep(rng.choice(PAUSES))


async def play_round(mesh: RealMesh, rng: random.Random, edits: int) -> list[str]:
    """Edit at random, compare with a fresh start, edit on, return to the base, and compare again.

    Return the differences.
    """
    for _ in range(edits // 2):
        await edit(mesh, rng)
    differences = [f"after edits: {line}" for line in await mesh.differences()]
    for _ in range(edits - edits // 2):
        await edit(mesh, rng)
    for slot, variant in enumerate(base_state()):
        if mesh.state[slot] != variant:
            await mesh.set(slot, variant)
    return differences + [f"back at the base: {line}" for line in await mesh.differences()]
