"""The location of a client, reduced to the fields that affect a cluster's endpoints, so that clients can share them."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy
from pilot.lib import labels as label
from pilot.mesh.model.endpoint import Endpoint, Locality
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType

CrossNetwork = Literal["sni", "hbone", "none"]
"""The path to endpoints behind gateways of other networks: mTLS with SNI, double HBONE, or none."""


class ClientLocationKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The location of a client. Fields that do not affect a cluster's endpoints have default values.

    `label_values` are the client's values of the labels that determine the failover priority. `hbone` is set if the
    client may originate tunnels.
    """

    locality: Locality = Locality()
    label_values: tuple[str, ...] = ()
    node: str = ""
    cluster_id: str = ""
    network: str = ""
    networks: frozenset[str] = frozenset()
    ipv4: bool = True
    ipv6: bool = True
    sidecar: bool = True
    hbone: bool = False
    cross_network: CrossNetwork = "sni"

    def can_view(self, network: str) -> bool:
        """Return whether the client's requested network view includes a network.

        An unnamed network is always included.
        """
        return not self.networks or not network or network in self.networks

    def in_network(self, network: str) -> bool:
        """Return whether the client is in a network. An unknown network matches any network."""
        return not network or not self.network or network == self.network


@lru_cache(maxsize=256)
def unlocated_client(cluster_id: str, hbone: bool = False) -> ClientLocationKey:
    """Return a location that only contains the Kubernetes cluster, for endpoints that do not depend on other fields."""
    return ClientLocationKey(cluster_id=cluster_id, hbone=hbone)


def build_client_location(
    policy: EndpointPolicy,
    outbound: OutboundFacet,
    multi_network: bool,
    hbone: bool = False,
    cross_network: CrossNetwork = "sni",
) -> ClientLocationKey:
    """Return the location of a client for an outbound cluster with this policy."""
    reach, balancing = outbound.location, policy.balancing
    if balancing is None and not multi_network and not reach.networks and not policy.node_local:
        return unlocated_client(reach.cluster_id, hbone)
    return ClientLocationKey(
        locality=reach.locality if balancing is not None and balancing.needs_locality else Locality(),
        label_values=_label_values(balancing.failover_priority, outbound) if balancing is not None else (),
        node=reach.node if policy.node_local else "",
        cluster_id=reach.cluster_id,
        network=reach.network if multi_network else "",
        networks=reach.networks,
        ipv4=reach.ipv4 if multi_network else True,
        ipv6=reach.ipv6 if multi_network else True,
        sidecar=outbound.type is NodeType.SIDECAR if multi_network else True,
        hbone=hbone,
        cross_network=cross_network,
    )


def _label_values(failover_priority: tuple[str, ...], outbound: OutboundFacet) -> tuple[str, ...]:
    """Return the client's value for each label. A setting of the form "key=value" overrides the client's value."""
    if not failover_priority:
        return ()
    reach = outbound.location
    values = {
        label.REGION: reach.locality.region,
        label.ZONE: reach.locality.zone,
        label.SUBZONE: reach.locality.subzone,
        label.CLUSTER: reach.cluster_id,
        label.HOSTNAME: reach.node,
        **dict(outbound.labels),
    }
    parts = (item.split("=") for item in failover_priority)
    return tuple(p[1] if len(p) == 2 else values.get(p[0], "") for p in parts)


def label_distance(endpoint: Endpoint, failover_priority: tuple[str, ...], client: tuple[str, ...]) -> int:
    """Return the distance between an endpoint and a client, based on their labels.

    It is 0 if all labels match. Otherwise, the distance is greater if the first mismatch occurs earlier in the list. If
    the network is the first label and differs, the other labels are still compared, and the endpoint is farther away
    than any endpoint in the same network.
    """
    labels = dict(endpoint.labels)
    network_distance = 0
    for i, (key, value) in enumerate(zip((a.partition("=")[0] for a in failover_priority), client, strict=True)):
        if labels.get(key, "") != value:
            if i == 0 and failover_priority[0] == label.NETWORK:
                network_distance = len(failover_priority)
                continue
            return network_distance + len(failover_priority) - i
    return network_distance
