"""After random edits and faults, installed objects equal a fresh rendering of the IstioOperators. `bench/operator_soak.py` runs longer."""

from __future__ import annotations

import pytest

from testing.kube.operator_edits import TEAMS, run_random_edits


@pytest.mark.parametrize(("namespaces", "seed"), [(f"istio-system,{','.join(TEAMS)}", 1), ("", 2)], ids=["list", "all"])
@pytest.mark.timeout(300)
async def test_installed_objects_after_random_edits_and_faults(namespaces: str, seed: int) -> None:
    await run_random_edits(namespaces, 50, seed)
