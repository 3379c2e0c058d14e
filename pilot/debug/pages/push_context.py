"""The debug page pushcontext, which shows mesh-wide configuration."""

from __future__ import annotations

from typing import Any

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.debug.page import Later, Query
from pilot.debug.pages.configuration import show_policies
from pilot.debug.pages.registry import show_network_gateway
from pilot.debug.sources import Sources
from pilot.mesh.registry.networks import network_gateways, unresolved_gateways
from pilot.mesh.tables.mesh_config import mesh_config


def pushcontext(sources: Sources, query: Query) -> Any:
    """Return the authorization policies and the network gateways, including gateways whose hostname has not been
    resolved."""
    rows, root = (
        [row for _, row in AUTHORIZATION_POLICY.table(sources.db).rows()],
        mesh_config(sources.db).root_namespace,
    )
    gateways = {
        "NetworkGateways": [show_network_gateway(g) for g in network_gateways(sources.db).gateways] or None,
        "UnresolvedGateways": [show_network_gateway(g) for g in unresolved_gateways(sources.db)] or None,
    }
    return Later(lambda: {"AuthorizationPolicies": show_policies(rows, root), **gateways})
