"""Patches route configurations piece by piece.

Several configurations can share a piece, which contains virtual hosts. A shared piece is only patched once. A piece
that is neither patched nor edited keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from envoy.config.route.v3 import route_pb2

from pilot.derive import derived, derived_in_steps
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch, patch
from pilot.envoy.envoy_filter.patch_effects import Effects, Misfit
from pilot.envoy.envoy_filter.patch_limit import limit_patches
from pilot.envoy.envoy_filter.patch_match import host_texts, matches_routes
from pilot.envoy.envoy_filter.patch_routes import (
    add_hosts,
    adds_host,
    domains_of,
    patch_configuration,
    patch_hosts,
    patch_routes,
)
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.tables.database import Mesh


class RoutePiece:
    """A piece of a route configuration: serialized virtual host fields. Pieces are equal if their bytes are equal."""

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
    """A piece after patching, the patches that changed it and the patches that do not fit it."""

    data: bytes
    applied: tuple[PatchKey, ...]
    misfits: tuple[Misfit, ...]


def patch_pieces(
    db: Mesh, original: Resource, patches: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects
) -> Generator[None, None, Resource]:
    """Return a patched route configuration, or the original if no patch changes it. Not memoised."""
    matching = [patch for patch in patches if matches_routes(patch.match.route_configuration, original.name, facet)]
    first, *pieces = original.message_pieces
    head = route_pb2.RouteConfiguration.FromString(first)
    if any(
        patch.apply_to == "ROUTE_CONFIGURATION" and patch.merges and patch.value.virtual_hosts for patch in matching
    ):  # the order of virtual hosts matters
        for piece in pieces:
            head.MergeFromString(piece)
        yield from patch_routes(head, limit_patches(matching, _counter(head.virtual_hosts), effects), facet, effects)
        return Resource.of(ROUTE, head) if effects.applied else original
    yield from patch_configuration(head, matching, effects)
    host_patches = [patch for patch in matching if patch.apply_to != "ROUTE_CONFIGURATION" and not adds_host(patch)]
    for index in range(len(pieces) - 1, -1, -1):
        applicable = _applicable_patches(pieces[index], host_patches) if pieces[index] else ()
        if applicable:
            patched = _patched_piece(db, RoutePiece(pieces[index]), tuple(patch.key for patch in applicable))
            effects.update(patched.applied, patched.misfits)
            pieces[index] = patched.data
    yield from patch_hosts(head.virtual_hosts, host_patches, effects)
    added = route_pb2.RouteConfiguration(name=head.name)
    if any(map(adds_host, matching)):
        domains = domains_of(head.virtual_hosts)
        for piece in filter(None, pieces):
            domains |= _domains(db, RoutePiece(piece))
            yield
        add_hosts(added, matching, effects, domains)
    if not effects.applied:
        return original
    added.ClearField("name")
    pieces.append(added.SerializeToString(deterministic=True))
    return Resource(
        head.name, ROUTE, head.SerializeToString(deterministic=True), extra_pieces=tuple(filter(None, pieces))
    )


def _applicable_patches(piece: bytes, patches: Sequence[ParsedPatch]) -> Sequence[ParsedPatch]:
    """Return the patches that can change a piece.

    The piece must contain the virtual host name and the domain that a patch names. If a patch may rename virtual hosts,
    all patches are returned.
    """
    applicable = [patch for patch in patches if all(text in piece for text in host_texts(patch))]
    renames = any(
        patch.apply_to == "VIRTUAL_HOST" and patch.value is not None and (patch.value.name or patch.value.domains)
        for patch in applicable
    )
    return patches if renames else applicable


@derived_in_steps
def _patched_piece(db: Mesh, piece: RoutePiece, patches: tuple[PatchKey, ...]) -> Generator[None, None, PatchedPiece]:
    """Return a piece after patching. Every configuration that contains the piece shares the result."""
    hosts, effects = route_pb2.RouteConfiguration.FromString(piece.data), Effects()
    rows = [row for key in patches if (row := patch(db, key)) is not None]
    limited = limit_patches(rows, _counter(hosts.virtual_hosts), effects)
    yield from patch_hosts(hosts.virtual_hosts, limited, effects)
    data = hosts.SerializeToString(deterministic=True) if effects.applied else piece.data
    return PatchedPiece(data, tuple(effects.applied), tuple(effects.misfits))


@derived
def _domains(db: Mesh, piece: RoutePiece) -> frozenset[str]:
    return frozenset(domains_of(route_pb2.RouteConfiguration.FromString(piece.data).virtual_hosts))


def _counter(hosts: Sequence[Any]) -> Callable[[ParsedPatch], int]:
    """Return a function that returns the number of virtual hosts or routes to which a patch may apply."""
    routes = sum(len(host.routes) for host in hosts)
    return lambda patch: routes if patch.apply_to == "HTTP_ROUTE" else len(hosts)
