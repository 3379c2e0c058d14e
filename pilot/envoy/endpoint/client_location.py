"""Says from where one cluster's endpoints are seen: of a client's place only what they depend on, so that clients share them."""

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
"""How endpoints behind a gateway between networks are reached: by SNI through mesh mTLS, by a tunnel in a tunnel, or not at all."""


class ClientLocationKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Holds what endpoints depend on of a client's place; fields are empty where they do not matter. `label_values`: the client's values of
    the labels that decide who is near. `hbone`: it may begin tunnels to them; `ways`: how it passes the gateways of other networks."""

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
    ways: CrossNetwork = "sni"

    def sees(self, network: str) -> bool:
        """Returns whether the client asked to see a network; one without a name is always seen."""
        return not self.networks or not network or network in self.networks

    def in_network(self, network: str) -> bool:
        """Returns whether the client is in a network, as far as both are known."""
        return not network or not self.network or network == self.network


@lru_cache(maxsize=256)
def unlocated_client(cluster_id: str, hbone: bool = False) -> ClientLocationKey:
    """Returns the vantage of every client of a Kubernetes cluster that sends HBONE, or of every one that does not."""
    return ClientLocationKey(cluster_id=cluster_id, hbone=hbone)


def build_client_location(
    policy: EndpointPolicy,
    outbound: OutboundFacet,
    multi_network: bool,
    hbone: bool = False,
    ways: CrossNetwork = "sni",
) -> ClientLocationKey:
    """Returns the vantage of a client, for an outbound cluster of this policy."""
    reach, balance = outbound.reach, policy.balance
    if balance is None and not multi_network and not reach.networks and not policy.node_local:
        return unlocated_client(reach.cluster_id, hbone)
    return ClientLocationKey(
        locality=reach.locality if balance is not None and balance.needs_locality else Locality(),
        label_values=_nearness(balance.failover_priority, outbound) if balance is not None else (),
        node=reach.node if policy.node_local else "",
        cluster_id=reach.cluster_id,
        network=reach.network if multi_network else "",
        networks=reach.networks,
        ipv4=reach.ipv4 if multi_network else True,
        ipv6=reach.ipv6 if multi_network else True,
        sidecar=outbound.type is NodeType.SIDECAR if multi_network else True,
        hbone=hbone,
        ways=ways,
    )


def _nearness(asked: tuple[str, ...], outbound: OutboundFacet) -> tuple[str, ...]:
    """Returns the client's value of each label, or that which stands in its place ("key=value")."""
    if not asked:
        return ()
    reach = outbound.reach
    have = {
        label.REGION: reach.locality.region,
        label.ZONE: reach.locality.zone,
        label.SUBZONE: reach.locality.subzone,
        label.CLUSTER: reach.cluster_id,
        label.HOSTNAME: reach.node,
        **dict(outbound.labels),
    }
    parts = (a.split("=") for a in asked)
    return tuple(p[1] if len(p) == 2 else have.get(p[0], "") for p in parts)


def label_distance(endpoint: Endpoint, asked: tuple[str, ...], client: tuple[str, ...]) -> int:
    """Returns how far an endpoint is by labels: 0 where all are alike, else more the earlier the first that differs.

    Where the network comes first and differs, the others still count, and the endpoint is farther than any of the same network.
    """
    labels = dict(endpoint.labels)
    beyond = 0
    for i, (key, value) in enumerate(zip((a.partition("=")[0] for a in asked), client, strict=True)):
        if labels.get(key, "") != value:
            if i == 0 and asked[0] == label.NETWORK:
                beyond = len(asked)
                continue
            return beyond + len(asked) - i
    return beyond
