"""Derives a patch that is ready to be applied: its value as a message, once for all that it touches."""

from __future__ import annotations

from typing import Any, NamedTuple

from pilot.config.networking.envoy_filter import EnvoyConfigObjectMatch, FilterMatch
from pilot.config.patch_value import MERGES, read_patch_value
from pilot.derive import derived, hub
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.proxies.patches import configured_patch
from pilot.mesh.tables.database import Mesh

_UNORDERED = frozenset(("LISTENER", "FILTER_CHAIN", "CLUSTER", "VIRTUAL_HOST", "EXTENSION_CONFIG"))
_ANYTHING = EnvoyConfigObjectMatch()


class ParsedPatch(NamedTuple):
    """A patch. `value` is shared by everything that is patched: it is copied, and never changed; None where something is removed.

    An insertion where order does not matter is an addition.
    """

    key: PatchKey
    apply_to: str
    operation: str
    match: EnvoyConfigObjectMatch
    value: Any
    filter_class: str

    @property
    def merges(self) -> bool:
        """Returns whether the value is merged."""
        return self.operation in MERGES

    @property
    def replaces_lists(self) -> bool:
        """Returns whether lists of the value take the place of those that are there, instead of being appended."""
        return self.operation == "MERGE_AND_REPLACE_LIST"

    @property
    def network_filter(self) -> FilterMatch | None:
        """Returns the network filter that is asked for, None where any is."""
        listener = self.match.listener
        return listener.filter_chain.filter if listener is not None and listener.filter_chain is not None else None

    @property
    def listener_filter(self) -> str:
        """Returns the name of the listener filter that is asked for, "" where any is."""
        return self.match.listener.listener_filter if self.match.listener is not None else ""


@derived
def patch(db: Mesh, key: PatchKey) -> ParsedPatch | None:
    """Returns a patch; None for one whose value is wrong, which is left out."""
    found = configured_patch(db, key)
    if found is None or found.patch is None:
        return None
    operation = (
        "ADD" if found.apply_to in _UNORDERED and found.patch.operation.startswith("INSERT_") else found.patch.operation
    )
    value = None
    if operation != "REMOVE":
        value, faults = read_patch_value(found.apply_to, operation, found.patch.value or {})
        if faults:
            return None
    return ParsedPatch(key, found.apply_to, operation, found.match or _ANYTHING, value, found.patch.filter_class)


@hub
def patches(db: Mesh, facet: PatchFacet) -> tuple[ParsedPatch, ...]:
    """Returns the patches of a facet that can be applied, in their order."""
    return tuple(found for key in facet.patches if (found := patch(db, key)) is not None)
