"""Records which patches changed something, and which do not fit the resource that they match."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.lib.protobuf.fault import Violation
from pilot.mesh.model.facets import PatchKey


class Misfit(NamedTuple):
    """A patch that does not fit a resource that it matches. The fault's location is a path in the patch's value."""

    patch: PatchKey
    fault: Violation


class Effects:
    """Collects the effects of patches while they are applied."""

    def __init__(self) -> None:
        self.applied: dict[PatchKey, None] = {}
        self.misfits: dict[Misfit, None] = {}

    def record_applied(self, patch: ParsedPatch) -> None:
        """Record that a patch changed a resource."""
        self.applied[patch.key] = None

    def record_misfit(self, patch: ParsedPatch, fault: Violation) -> None:
        """Record that a patch does not fit a resource."""
        self.misfits[Misfit(patch.key, fault)] = None

    def update(self, applied: Iterable[PatchKey], misfits: Iterable[Misfit]) -> None:
        """Add effects that were recorded elsewhere."""
        self.applied.update(dict.fromkeys(applied))
        self.misfits.update(dict.fromkeys(misfits))
