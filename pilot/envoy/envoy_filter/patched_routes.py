"""Patches route configurations piece by piece: virtual hosts that several configurations have in one piece are patched once for all of them.

Where nothing in a piece changed, neither by a patch nor by an edit, its bytes are those that were there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envoy.config.route.v3 import route_pb2

from pilot.derive import derived
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch, patch
from pilot.envoy.envoy_filter.patch_effects import Effects, Misfit
from pilot.envoy.envoy_filter.patch_match import host_texts, matches_routes
from pilot.envoy.envoy_filter.patch_routes import add_hosts, patch_configuration, patch_hosts, patch_routes
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.tables.database import Mesh


class RoutePiece:
    """Holds virtual hosts of a configuration, serialized as its fields; equal where the bytes are."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoutePiece) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"<virtual hosts of {len(self.data)} bytes>"


class PatchedPiece(NamedTuple):
    """Holds what became of a piece."""

    data: bytes
    applied: tuple[PatchKey, ...]
    misfits: tuple[Misfit, ...]


def patch_pieces(
    db: Mesh, original: Resource, found: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects
) -> Resource:
    """Returns a route configuration with patches: the same one where none changed it. No node of its own."""
    own = [one for one in found if matches_routes(one.match.route_configuration, original.name, facet)]
    first, *pieces = original.message_pieces
    head = route_pb2.RouteConfiguration.FromString(first)
    if any(
        one.apply_to == "ROUTE_CONFIGURATION" and one.merges and one.value.virtual_hosts for one in own
    ):  # whose place among the others counts
        for piece in pieces:
            head.MergeFromString(piece)
        patch_routes(head, own, facet, effects)
        return Resource.of(ROUTE, head) if effects.applied else original
    patch_configuration(head, own, effects)
    inner = [
        one
        for one in own
        if one.apply_to != "ROUTE_CONFIGURATION" and (one.apply_to, one.operation) != ("VIRTUAL_HOST", "ADD")
    ]
    for index in range(len(pieces) - 1, -1, -1):
        touching = _touching(pieces[index], inner)
        if touching:
            done = _patched_piece(db, RoutePiece(pieces[index]), tuple(one.key for one in touching))
            effects.take(done.applied, done.misfits)
            pieces[index] = done.data
    patch_hosts(head.virtual_hosts, inner, effects)
    more = route_pb2.RouteConfiguration()
    add_hosts(more, own, effects)
    if not effects.applied:
        return original
    pieces.append(more.SerializeToString(deterministic=True))
    return Resource(
        head.name, ROUTE, head.SerializeToString(deterministic=True), extra_pieces=tuple(filter(None, pieces))
    )


def _touching(piece: bytes, patches: Sequence[ParsedPatch]) -> Sequence[ParsedPatch]:
    """Returns the patches that can change a piece: those that name no virtual host, or one whose name and domain stand in it. After one that may
    give hosts other names that is all of them."""
    found = [one for one in patches if all(text in piece for text in host_texts(one))]
    renames = any(
        one.apply_to == "VIRTUAL_HOST" and one.value is not None and (one.value.name or one.value.domains)
        for one in found
    )
    return patches if renames else found


@derived
def _patched_piece(db: Mesh, piece: RoutePiece, patches: tuple[PatchKey, ...]) -> PatchedPiece:
    """Returns a piece with patches, wherever it stands."""
    hosts, effects = route_pb2.RouteConfiguration.FromString(piece.data), Effects()
    patch_hosts(hosts.virtual_hosts, [found for key in patches if (found := patch(db, key)) is not None], effects)
    data = hosts.SerializeToString(deterministic=True) if effects.applied else piece.data
    return PatchedPiece(data, tuple(effects.applied), tuple(effects.misfits))
