"""The problems between the objects of a world."""

from __future__ import annotations

from pilot.config.problem import Problem
from pilot.envoy.plans.gateway_problems import ROUTERS
from pilot.mesh.analysis.listed import CHECKS
from testing.mesh.world import World


def problems_of(world: World) -> tuple[Problem, ...]:
    """All of them, those of connected routers too."""
    db = world.mesh
    return tuple(
        problem for check in (*CHECKS, ROUTERS) for key in check.keys(db) for problem in check.problems(db, key)
    )
