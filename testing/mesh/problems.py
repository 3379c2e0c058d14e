"""The configuration problems of a mesh."""

from __future__ import annotations

from pilot.config.problem import Problem
from pilot.envoy.plans.gateway_problems import ROUTERS
from pilot.envoy.plans.policy_problems import POLICIES_OF_PROXIES
from pilot.mesh.analysis.listed import CHECKS
from testing.mesh.world import World


def problems_of(world: World) -> tuple[Problem, ...]:
    """Return all problems, including those of connected routers."""
    db = world.mesh
    return tuple(
        problem
        for check in (*CHECKS, ROUTERS, POLICIES_OF_PROXIES)
        for key in check.keys(db)
        for problem in check.problems(db, key)
    )
