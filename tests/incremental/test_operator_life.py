"""Whatever happens, what IstioOperators install is what a fresh rendering of them gives; `bench/operator_life.py` goes on for longer."""

from __future__ import annotations

import pytest

from testing.kube.operator_edits import TEAMS, live


@pytest.mark.parametrize(("watched", "seed"), [(f"istio-system,{','.join(TEAMS)}", 1), ("", 2)], ids=["list", "all"])
@pytest.mark.timeout(300)
async def test_everything_is_as_it_should_be_after_random_edits_and_faults(watched: str, seed: int) -> None:
    await live(watched, 50, seed)
