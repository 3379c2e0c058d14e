"""The problems between the objects of a world."""

from __future__ import annotations

from pilot.model.checks.listed import CHECKS
from pilot.model.problem import Problem
from pilot.translate.profile.gateway_problems import ROUTERS
from tests.support.world import World


def problems_of(world: World) -> tuple[Problem, ...]:
    """All of them, those of connected routers too."""
    db = world.mesh
    return tuple(
        problem for check in (*CHECKS, ROUTERS) for key in check.keys(db) for problem in check.problems(db, key)
    )
