"""Discovery of the workloads behind tunnels by the header `baggage`.

The listener that opens a tunnel reads the header from the response, and writes it before the first data of the
connection. The cluster of the connection removes it again and stores it for telemetry, so both must take part.
"""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2, filter_pb2

from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.network_filter.simple_network_filters import TUNNEL_PEER_FILTER
from pilot.envoy.transport_socket.hbone_sockets import PEER_METADATA_KEY
from pilot.envoy.well_known_types import pack_struct
from pilot.mesh.model.proxy import NodeType

UPSTREAM_PEER = filter_pb2.Filter(
    name=TUNNEL_PEER_FILTER,
    typed_config=pack_struct("envoy.extensions.network_filters.peer_metadata.UpstreamConfig", {}),
)
"""The filter that receives the description of the peer from the listener that opens the tunnel."""


def sends_tunnels(traits: ClusterTraitsKey, defaults: ClusterDefaults) -> bool:
    """Return whether the clusters of a proxy may connect through tunnels."""
    return traits.supports_tunnels and (defaults.send_hbone or traits.type is NodeType.WAYPOINT)


def apply_discovery(cluster: cluster_pb2.Cluster, traits: ClusterTraitsKey, defaults: ClusterDefaults) -> None:
    """Let a cluster with discovered endpoints receive the description of its peers."""
    if _takes_part(traits, defaults) and cluster.type == cluster_pb2.Cluster.EDS:
        cluster.filters.append(UPSTREAM_PEER)


def disable_discovery(cluster: cluster_pb2.Cluster, traits: ClusterTraitsKey, defaults: ClusterDefaults) -> None:
    """Disable discovery for a cluster whose connections do not begin with the application's data."""
    if _takes_part(traits, defaults):
        cluster.metadata.filter_metadata[PEER_METADATA_KEY].fields["disable_baggage_discovery"].bool_value = True


def _takes_part(traits: ClusterTraitsKey, defaults: ClusterDefaults) -> bool:
    return defaults.baggage and traits.tunnel_metadata and sends_tunnels(traits, defaults)
