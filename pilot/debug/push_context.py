"""What applies to the whole mesh: pushcontext."""
from __future__ import annotations

from typing import Any

from pilot.debug.configuration import authorizationz
from pilot.debug.page import Query
from pilot.debug.registry import show_network_gateway
from pilot.debug.sources import Sources
from pilot.model.views.networks import network_gateways, unresolved_gateways


def pushcontext(sources: Sources, query: Query) -> Any:
    """Returns the authorization policies and the gateways between networks; those whose host name has no addresses yet are listed as unresolved."""
    return {
        "AuthorizationPolicies": authorizationz(sources, query)["authorization_policies"],
        "NetworkGateways": [show_network_gateway(g) for g in network_gateways(sources.db).gateways] or None,
        "UnresolvedGateways": [show_network_gateway(g) for g in unresolved_gateways(sources.db)] or None,
    }
