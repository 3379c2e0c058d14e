"""Patches the routes that stand in listeners: those of a sidecar's inbound side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pilot.config.validation.traffic.envoy_filter import HTTP_MANAGER
from pilot.envoy.envoy_filter.effects import Effects
from pilot.envoy.envoy_filter.match import matches_routes
from pilot.envoy.envoy_filter.patch import ReadPatch
from pilot.envoy.envoy_filter.routes import patch_routes
from pilot.lib.protobuf.constraints import unpack
from pilot.mesh.model.facets import PatchFacet


def patch_inline_routes(listener: Any, patches: Sequence[ReadPatch], facet: PatchFacet, effects: Effects) -> None:
    """Patches the routes in a listener in place."""
    own = [patch for patch in patches if patch.apply_to in ("ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE")]
    for item in _managers(listener) if own else ():
        manager = unpack(item.typed_config)
        if manager is None or not manager.HasField("route_config"):
            continue
        asked = [
            patch for patch in own if matches_routes(patch.match.route_configuration, manager.route_config.name, facet)
        ]
        if asked:
            patch_routes(manager.route_config, asked, facet, effects)
            item.typed_config.value = manager.SerializeToString(deterministic=True)


def _managers(listener: Any) -> Iterator[Any]:
    for chain in (*listener.filter_chains, listener.default_filter_chain):
        yield from (item for item in chain.filters if item.name == HTTP_MANAGER)
