"""Applies patches to listeners and their listener filters, filter chains and inline routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pilot.config.validation.traffic.envoy_filter import HTTP_MANAGER
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_filters import patch_network_filters
from pilot.envoy.envoy_filter.patch_limit import Steps, batches, limit_patches
from pilot.envoy.envoy_filter.patch_list import change_list
from pilot.envoy.envoy_filter.patch_match import matches_chain, matches_listener, matches_routes
from pilot.envoy.envoy_filter.patch_merge import merge_packed, merge_socket, merge_value
from pilot.envoy.envoy_filter.patch_routes import patch_routes
from pilot.lib.protobuf.constraints import unpack
from pilot.lib.protobuf.fault import Violation
from pilot.mesh.model.facets import PatchFacet

_SOCKET = "transport_socket"


def patch_listener(listener: Any, patches: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects) -> Steps[bool]:
    """Patch a listener in place, from the outside inwards. Return False if a patch removes it."""
    chains = len(listener.filter_chains) + 1
    patches = limit_patches(patches, lambda patch: 1 if patch.apply_to.startswith("LISTENER") else chains, effects)
    yield from patch_inline_routes(listener, patches, facet, effects)
    for batch in batches(_of("LISTENER", patches, listener)):
        for patch in batch:
            if patch.operation == "REMOVE":
                effects.record_applied(patch)
                return False
            if patch.merges and merge_value(listener, patch.value, patch, effects):
                effects.record_applied(patch)
        yield
    for batch in batches(_of("LISTENER_FILTER", patches, listener)):
        for patch in batch:
            _patch_listener_filters(listener.listener_filters, patch, effects)
        yield
    yield from _patch_chains(listener, patches, effects)
    return True


def _of(apply_to: str, patches: Iterable[ParsedPatch], listener: Any) -> list[ParsedPatch]:
    """Return the patches that have this `applyTo` value and match a listener in its current state."""
    return [patch for patch in patches if patch.apply_to == apply_to and matches_listener(patch, listener)]


def _patch_listener_filters(filters: Any, patch: ParsedPatch, effects: Effects) -> None:
    name = patch.listener_filter
    if not patch.merges:
        change_list(filters, patch, (lambda item: item.name == name) if name else None, effects)
        return
    for item in filters if name and patch.value.HasField("typed_config") else ():
        if (
            item.name == name
            and item.HasField("typed_config")
            and merge_packed(item.typed_config, patch.value.typed_config, patch, effects)
        ):
            effects.record_applied(patch)


# -- filter chains -----------------------------------------------------------------------------------------------------


def _patch_chains(listener: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[None]:
    """Patch the filter chains of a listener. Chains that patches add are not patched."""
    matching = [patch for patch in patches if matches_listener(patch, listener)]
    for index in range(len(listener.filter_chains) - 1, -1, -1):
        if not (yield from _patch_chain(listener, listener.filter_chains[index], matching, effects)):
            del listener.filter_chains[index]
        yield
    if listener.HasField("default_filter_chain") and not (
        yield from _patch_chain(listener, listener.default_filter_chain, matching, effects)
    ):
        listener.ClearField("default_filter_chain")
    for patch in _of("FILTER_CHAIN", patches, listener):
        if patch.operation == "ADD":
            _add_chain(listener, patch, effects)
            yield  # it was compared with every chain


def _add_chain(listener: Any, patch: ParsedPatch, effects: Effects) -> None:
    """Add a filter chain, unless Envoy would reject the listener because another chain has the same match."""
    match = patch.value.filter_chain_match
    if not listener.HasField("filter_chain_matcher"):
        repeated = next((chain for chain in listener.filter_chains if chain.filter_chain_match == match), None)
        if repeated is not None:
            text = f"filter chain {repeated.name!r} has the same match"
            effects.record_misfit(patch, Violation("repeated-match", ("filter_chain_match",), text))
            return
    listener.filter_chains.add().CopyFrom(patch.value)
    effects.record_applied(patch)


def _patch_chain(listener: Any, chain: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[bool]:
    """Patch a filter chain in place. Return False if a patch removes it. All patches match the listener."""
    for batch in batches([patch for patch in patches if patch.apply_to == "FILTER_CHAIN" and patch.operation != "ADD"]):
        for patch in batch:
            if not matches_chain(patch, listener, chain):
                continue
            if patch.operation == "REMOVE":
                effects.record_applied(patch)
                return False
            if _merge_chain(chain, patch, effects):
                effects.record_applied(patch)
        yield
    yield from patch_network_filters(listener, chain, patches, effects)
    return True


def _merge_chain(chain: Any, patch: ParsedPatch, effects: Effects) -> bool:
    """Merge a patch into a filter chain. Return whether the patch fits.

    If the transport sockets of the chain and of the patch have the same name, they are merged.
    """
    socket = patch.value.transport_socket
    if not socket.name or socket.name != chain.transport_socket.name:
        return merge_value(chain, patch.value, patch, effects)
    merged, remainder = type(chain)(), type(chain)()
    merged.CopyFrom(chain)
    remainder.CopyFrom(patch.value)
    remainder.ClearField(_SOCKET)
    if not merge_socket(merged.transport_socket, socket, patch, effects, (_SOCKET,)):
        return False
    if remainder.ListFields() and not merge_value(merged, remainder, patch, effects):
        return False
    chain.CopyFrom(merged)
    return True


def patch_inline_routes(
    listener: Any, patches: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects
) -> Steps[None]:
    """Patch the route configurations that a listener contains, in place."""
    route_patches = [
        patch for patch in patches if patch.apply_to in ("ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE")
    ]
    for network_filter in _managers(listener) if route_patches else ():
        manager = unpack(network_filter.typed_config)
        if manager is None or not manager.HasField("route_config"):
            continue
        matching = [
            patch
            for patch in route_patches
            if matches_routes(patch.match.route_configuration, manager.route_config.name, facet)
        ]
        if matching:
            yield from patch_routes(manager.route_config, matching, facet, effects)
            network_filter.typed_config.value = manager.SerializeToString(deterministic=True)


def _managers(listener: Any) -> Iterator[Any]:
    for chain in (*listener.filter_chains, listener.default_filter_chain):
        yield from (item for item in chain.filters if item.name == HTTP_MANAGER)
