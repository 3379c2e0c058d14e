"""A patch that is ready to be applied. Its value is parsed once for all resources that it changes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from pilot.config.networking.envoy_filter import EnvoyConfigObjectMatch, FilterMatch
from pilot.config.patch_value import MERGES, read_patch_value_in_steps
from pilot.derive import derived_in_steps, hub
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.proxies.patches import configured_patch
from pilot.mesh.tables.database import Mesh

_UNORDERED = frozenset(("LISTENER", "FILTER_CHAIN", "CLUSTER", "VIRTUAL_HOST", "EXTENSION_CONFIG"))
_ANYTHING = EnvoyConfigObjectMatch()


class ParsedPatch(NamedTuple):
    """A patch with its parsed value.

    All patched resources share `value`, so it must be copied and never modified. It is None for removals. The operation
    of an insertion is replaced by ADD if the order is irrelevant.
    """

    key: PatchKey
    apply_to: str
    operation: str
    match: EnvoyConfigObjectMatch
    value: Any
    filter_class: str

    @property
    def merges(self) -> bool:
        """Return whether the patch merges its value into the target."""
        return self.operation in MERGES

    @property
    def replaces_lists(self) -> bool:
        """Return whether lists in the value replace existing lists instead of being appended to them."""
        return self.operation == "MERGE_AND_REPLACE_LIST"

    @property
    def network_filter(self) -> FilterMatch | None:
        """The match for a network filter, or None if every filter matches."""
        listener = self.match.listener
        return listener.filter_chain.filter if listener is not None and listener.filter_chain is not None else None

    @property
    def listener_filter(self) -> str:
        """The name of the listener filter to match, or "" if every filter matches."""
        return self.match.listener.listener_filter if self.match.listener is not None else ""


@derived_in_steps
def patch(db: Mesh, key: PatchKey) -> Generator[None, None, ParsedPatch | None]:
    """Return a patch, or None if it does not exist or its value is invalid."""
    configured = configured_patch(db, key)
    if configured is None or configured.patch is None:
        return None
    operation = (
        "ADD"
        if configured.apply_to in _UNORDERED and configured.patch.operation.startswith("INSERT_")
        else configured.patch.operation
    )
    value = None
    if operation != "REMOVE":
        value, faults = yield from read_patch_value_in_steps(
            configured.apply_to, operation, configured.patch.value or {}
        )
        if faults:
            return None
    return ParsedPatch(
        key, configured.apply_to, operation, configured.match or _ANYTHING, value, configured.patch.filter_class
    )


@hub
def patches(db: Mesh, facet: PatchFacet) -> tuple[ParsedPatch, ...]:
    """Return the valid patches of a facet, in order."""
    return tuple(parsed for key in facet.patches if (parsed := patch(db, key)) is not None)
