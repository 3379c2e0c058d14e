"""All clusters of a proxy, as the groups that its plan names."""
from __future__ import annotations

from pilot.model.facets import Inbound, Outbound
from pilot.model.inputs import Mesh
from pilot.model.views.sidecar_scope import outbound_traffic_policy
from pilot.translate.cluster.defaults import outbound_traits, without_place
from pilot.translate.cluster.inbound import inbound_clusters
from pilot.translate.cluster.outbound import inline_clusters, outbound_clusters, sni_routed_clusters
from pilot.translate.cluster.passthrough import credential_server_clusters, dynamic_dns_clusters, router_fixed_clusters, sidecar_fixed_clusters
from pilot.translate.profile.plan import Group


def sidecar_cluster_groups(db: Mesh, outbound: Outbound, inbound: Inbound) -> tuple[Group, ...]:
    """Of a sidecar; to be called in a derivation."""
    traits = outbound_traits(outbound)
    groups = [*_services(outbound), Group(sidecar_fixed_clusters, (traits,)), Group(inbound_clusters, (inbound,))]
    if outbound_traffic_policy(db, outbound.scope).dynamic_dns:
        groups.append(Group(dynamic_dns_clusters, (traits, outbound.dns_proxy)))
    return (*groups, *_servers(outbound))


def router_cluster_groups(outbound: Outbound, sni_routed: bool = False) -> tuple[Group, ...]:
    """Of a router. `sni_routed`: one of its Gateways is of mode AUTO_PASSTHROUGH."""
    routed = (Group(sni_routed_clusters, (outbound,)),) if sni_routed else ()
    return (*_services(outbound), Group(router_fixed_clusters, ()), *routed, *_servers(outbound))


def _services(outbound: Outbound) -> tuple[Group, ...]:
    return Group(outbound_clusters, (without_place(outbound),)), Group(inline_clusters, (outbound,))


def _servers(outbound: Outbound) -> tuple[Group, ...]:
    return (Group(credential_server_clusters, ()),) if outbound.secret_servers.credentials else ()
