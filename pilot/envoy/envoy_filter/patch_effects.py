"""What became of patches: which of them changed something, and which do not fit what they were to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.lib.protobuf.fault import Violation
from pilot.mesh.model.facets import PatchKey


class Misfit(NamedTuple):
    """A patch that is left out of something that it matches; the place is in its value."""

    patch: PatchKey
    fault: Violation


class Effects:
    """Gathers what becomes of patches while they are applied."""

    def __init__(self) -> None:
        self.applied: dict[PatchKey, None] = {}
        self.misfits: dict[Misfit, None] = {}

    def apply(self, patch: ParsedPatch) -> None:
        """Notes that a patch changed something."""
        self.applied[patch.key] = None

    def refuse(self, patch: ParsedPatch, fault: Violation) -> None:
        """Notes that a patch is left out."""
        self.misfits[Misfit(patch.key, fault)] = None

    def take(self, applied: Iterable[PatchKey], misfits: Iterable[Misfit]) -> None:
        """Notes what became of patches elsewhere."""
        self.applied.update(dict.fromkeys(applied))
        self.misfits.update(dict.fromkeys(misfits))
