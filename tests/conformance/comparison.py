"""Comparison of the resources of one type: equal, missing, surplus, different."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tests.conformance.resources import leaves_of

OPAQUE = {"type.googleapis.com/envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy"}
"""Messages that the recordings have only as a type."""
SHOWN_DIFFERENCES, SHOWN_CHARACTERS = 6, 160
_ABSENT = object()


@dataclasses.dataclass
class Score:
    """Counts of resources and of their leaves, over the union of both sides. Surplus and missing ones have the same weight."""

    resources: int = 0
    equal: int = 0
    leaves: int = 0
    equal_leaves: int = 0
    missing: list[str] = dataclasses.field(default_factory=list)
    surplus: list[str] = dataclasses.field(default_factory=list)
    different: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Score) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def share(self) -> float:
        return self.equal / self.resources if self.resources else 1.0

    @property
    def leaf_share(self) -> float:
        return self.equal_leaves / self.leaves if self.leaves else 1.0

    def details(self) -> list[str]:
        """Return a line, or a paragraph, for each resource that is not equal."""
        groups = (("missing", self.missing), ("surplus", self.surplus), ("differs", self.different))
        return [f"{title}: {row}" for title, rows in groups for row in rows]


def referenced_names(resources: dict[str, dict[str, Any]], kind: str) -> set[str]:
    """Return the names of routes or endpoints that the other resources, listeners or clusters, refer to."""
    if kind == "RDS":
        return set(re.findall(r"'routeConfigName': '([^']*)'", repr(resources.get("LDS", {}))))
    clusters = resources.get("CDS", {})
    return {
        cluster.get("edsClusterConfig", {}).get("serviceName") or name
        for name, cluster in clusters.items()
        if cluster.get("type") == "EDS"
    }


def compare(label: str, expected: dict[str, Any], actual: dict[str, Any]) -> Score:
    """Compare the resources of one type by name."""
    score = Score()
    for name in sorted(expected.keys() | actual.keys()):
        score.add(_compare_resource(f"{label} {name}", expected.get(name), actual.get(name)))
    return score


def _compare_resource(label: str, expected: Any | None, actual: Any | None) -> Score:
    if expected is None or actual is None:
        leaves = len(leaves_of(actual if expected is None else expected))
        return (
            Score(1, leaves=leaves, surplus=[label]) if expected is None else Score(1, leaves=leaves, missing=[label])
        )
    expected_leaves, actual_leaves = leaves_of(expected), leaves_of(actual)
    paths = (expected_leaves.keys() | actual_leaves.keys()) - _unrecorded_paths(expected_leaves, actual_leaves)
    differing = [
        path for path in sorted(paths) if expected_leaves.get(path, _ABSENT) != actual_leaves.get(path, _ABSENT)
    ]
    score = Score(1, not differing, len(paths), len(paths) - len(differing))
    if differing:
        rows = [f"{label}: {len(differing)} of {len(paths)} leaves"]
        for path in differing[:SHOWN_DIFFERENCES]:
            sides = (_show(leaves.get(path, _ABSENT)) for leaves in (expected_leaves, actual_leaves))
            rows.append("    {}\n      istiod {}\n      here   {}".format(path, *sides))
        if len(differing) > SHOWN_DIFFERENCES:
            rows.append(f"    … and {len(differing) - SHOWN_DIFFERENCES} more")
        score.different.append("\n".join(rows))
    return score


def _unrecorded_paths(expected: dict[str, Any], actual: dict[str, Any]) -> set[str]:
    """Return the paths inside of messages that the recording could not decode."""
    prefixes = [
        path.removesuffix("@type")
        for path, value in expected.items()
        if path.endswith(".@type") and value in OPAQUE and actual.get(path) == value
    ]
    return {path for path in actual if any(path.startswith(p) for p in prefixes) and not path.endswith("@type")}


def _show(value: Any) -> str:
    return "(absent)" if value is _ABSENT else repr(value)[:SHOWN_CHARACTERS]
