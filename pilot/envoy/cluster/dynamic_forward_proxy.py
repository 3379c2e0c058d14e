"""Builds clusters that resolve the host of each request when it comes.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/clusters/dynamic_forward_proxy/v3/cluster.proto
"""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.clusters.dynamic_forward_proxy.v3 import cluster_pb2 as dynamic_pb2
from envoy.extensions.common.dynamic_forward_proxy.v3 import dns_cache_pb2

from pilot.config.protocol import Protocol
from pilot.envoy.cluster.draft import ClusterDraft
from pilot.envoy.cluster.stat_name import delimited
from pilot.envoy.well_known_types import pack

NAME = "envoy.clusters.dynamic_forward_proxy"
# Only with these is the host of a request known: in its authority, or in the SNI.
PROTOCOLS = frozenset({Protocol.HTTP, Protocol.TLS, Protocol.GRPC, Protocol.HTTP2})


def build_dynamic(name: str, cache: dns_cache_pb2.DnsCacheConfig, insecure: bool = False) -> ClusterDraft:
    """Returns a cluster over a DNS cache, which must be the same in the filters before it; `insecure`: hosts need not be verified."""
    config = dynamic_pb2.ClusterConfig(dns_cache_config=cache, allow_insecure_cluster_options=insecure)
    cluster = cluster_pb2.Cluster(
        name=name,
        alt_stat_name=delimited(name),
        lb_policy=cluster_pb2.Cluster.CLUSTER_PROVIDED,
        cluster_type=cluster_pb2.Cluster.CustomClusterType(name=NAME, typed_config=pack(config)),
    )
    return ClusterDraft(cluster, dynamic=True)
