"""Sources of the debug pages for an in-memory mesh with fake connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pilot.config.problem import Problem
from pilot.debug.health import HealthChecker
from pilot.debug.sources import Sources
from pilot.envoy.resource import Resource
from pilot.lib.build_info import BuildInfo
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh

ALL = frozenset({"*"})


@dataclasses.dataclass
class FakeWatch:
    """A subscription of a fake connection."""

    names: Collection[str] = ALL
    wildcard_names: Collection[str] = ()
    nonce_sent: str = "n1"
    nonce_acked: str = "n1"
    sent_at: float = 1_700_000_000.0
    last_error: str = ""
    rejected_since: float = 0.0


@dataclasses.dataclass
class FakeConnection:
    """A connection that only has attributes."""

    id: str
    proxy_key: str
    proxy: Proxy
    address: str = "10.0.0.9:4444"
    connected_at: float = 1_700_000_000.0
    subscriptions: Mapping[str, FakeWatch] = dataclasses.field(
        default_factory=lambda: {BY_SHORT_NAME[name]: FakeWatch() for name in ("cds", "lds", "eds", "rds")}
    )
    activity: int = 0
    has_started: bool = True


class FakeFleet:
    """Implements `pilot.debug.sources.Fleet`."""

    version = "2026-01-02T03:04:05Z/7"

    def __init__(self, *connections: FakeConnection) -> None:
        self.current = list(connections)
        self.disconnected: list[str] = []
        self.pushes = self.cache_clears = 0
        self.resources: dict[str, Sequence[Mapping[str, Resource]]] = {}

    def connections(self) -> Sequence[FakeConnection]:
        return self.current

    def push_all(self) -> int:
        self.pushes += 1
        return len(self.current)

    def disconnect(self, connection_id: str) -> None:
        self.disconnected.append(connection_id)

    def cached_resources(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        return self.resources

    def clear_cache(self) -> None:
        self.cache_clears += 1


class FakeProblems:
    """Implements `pilot.debug.sources.ProblemList` for a sequence that a test may change."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._problems = problems

    @property
    def revision(self) -> int:
        return hash(tuple(self._problems))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._problems)

    def __len__(self) -> int:
        return len(self._problems)


def sources(mesh: Mesh, *connections: FakeConnection, problems: Sequence[Problem] = (), **options: Any) -> Sources:
    """Return the sources of a mesh with these connections."""
    fleet, build = FakeFleet(*connections), BuildInfo("1.2.3", "abc", "Clean")
    return Sources(mesh, Metrics(build), fleet, lambda: FakeProblems(problems), build=build, **options)


async def with_health(pages: Sources) -> Sources:
    """Return sources with the findings of the health checks."""
    health = HealthChecker(pages.db, pages.fleet, list(pages.problems()))
    await health.run_checks()
    return dataclasses.replace(pages, health=lambda: health.findings)
