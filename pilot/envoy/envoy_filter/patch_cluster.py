"""Applies patches to clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_limit import Steps, limit_patches
from pilot.envoy.envoy_filter.patch_match import matches_cluster
from pilot.envoy.envoy_filter.patch_merge import merge_socket, merge_value
from pilot.lib.protobuf.constraints import CODE
from pilot.lib.protobuf.envoy_rules import check_cluster
from pilot.lib.protobuf.fault import Violation
from pilot.mesh.model.facets import PatchFacet

_SOCKET = "transport_socket"


PART_BYTES = 1000
"""Size of a part of a cluster in bytes. Patching a cluster takes time in proportion to its size."""


def patch_cluster(cluster: Any, patches: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects) -> Steps[bool]:
    """Patch a cluster in place. Return False if a patch removes it."""
    parts = 1 + cluster.ByteSize() // PART_BYTES
    for patch in limit_patches(patches, lambda _: parts, effects):
        yield
        if not matches_cluster(patch.match.cluster, cluster.name, facet):
            continue
        if patch.operation == "REMOVE":
            effects.record_applied(patch)
            return False
        if patch.merges and _merge(cluster, patch, effects):
            effects.record_applied(patch)
    return True


def _merge(cluster: Any, patch: ParsedPatch, effects: Effects) -> bool:
    """Merge a patch into a cluster. Return whether the patch fits.

    The patch's transport socket is merged into the socket with the same name. This may be one of several sockets among
    which endpoints select.
    """
    socket = patch.value.transport_socket
    remainder = type(cluster)()
    remainder.CopyFrom(patch.value)
    if socket.name:
        remainder.ClearField(_SOCKET)
    merged = type(cluster)()
    merged.CopyFrom(cluster)
    if socket.name and not _merge_socket(merged, socket, patch, effects):
        return False
    if remainder.ListFields() and not merge_value(merged, remainder, patch, effects):
        return False
    place, text = next(check_cluster(merged), ((), ""))
    if text:
        effects.record_misfit(patch, Violation(CODE, place, text))
        return False
    cluster.CopyFrom(merged)
    return True


def _merge_socket(cluster: Any, socket: Any, patch: ParsedPatch, effects: Effects) -> bool:
    if cluster.transport_socket_matches:
        matching_socket: Message | None = next(
            (m.transport_socket for m in cluster.transport_socket_matches if m.transport_socket.name == socket.name),
            None,
        )
        if matching_socket is None:
            text = f"the cluster selects a transport socket for each endpoint, and none is named {socket.name}"
            effects.record_misfit(patch, Violation("no-such-socket", (_SOCKET, "name"), text))
            return False
        return merge_socket(matching_socket, socket, patch, effects, (_SOCKET,))
    if cluster.transport_socket.name == socket.name:
        return merge_socket(cluster.transport_socket, socket, patch, effects, (_SOCKET,))
    cluster.transport_socket.CopyFrom(socket)
    return True
