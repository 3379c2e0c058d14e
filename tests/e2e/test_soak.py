"""One round of random edits with twenty connected proxies. bench/soak.py repeats it for an hour."""

from __future__ import annotations

import pathlib
import random

from testing.processes.mesh_processes import RealMesh
from testing.processes.random_edits import play_round

EDITS = 8


async def test_proxies_converge_after_random_edits(tmp_path: pathlib.Path, seed: int) -> None:
    mesh = RealMesh(tmp_path)
    try:
        await mesh.start()
        assert await play_round(mesh, random.Random(seed), EDITS) == []
        assert await mesh.logged_errors() == []
    finally:
        await mesh.stop()
