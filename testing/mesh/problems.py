"""The configuration problems of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from pilot.config.problem import Problem
from pilot.envoy.plans.gateway_problems import ROUTERS
from pilot.envoy.plans.policy_problems import POLICIES_OF_PROXIES
from pilot.mesh.analysis.listed import CHECKS
from testing.mesh.world import World


def problems_of(world: World) -> tuple[Problem, ...]:
    """Return all problems, including those of connected routers."""
    return tuple(chain.from_iterable(check_objects(world)))


def check_objects(world: World) -> Iterator[tuple[Problem, ...]]:
    """Yield the problems of one object after the other. Each is checked in a step of its own."""
    db = world.mesh
    for check in (*CHECKS, ROUTERS, POLICIES_OF_PROXIES):
        for key in check.keys(db):
            yield check.problems(db, key)
