"""Hostile clients and broken directories, at one percent of the size of bench/chaos.py."""

from __future__ import annotations

import pathlib

import pytest

from testing.processes.attacks import SCENARIOS, Scenario, attack
from testing.processes.mesh_processes import RealMesh


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.__name__) for scenario in SCENARIOS])
async def test_proxies_converge_after_an_attack(scenario: Scenario, tmp_path: pathlib.Path) -> None:
    mesh = RealMesh(tmp_path)
    try:
        await mesh.start()
        assert await attack(mesh, scenario, 0.01) == []
    finally:
        await mesh.stop()
