"""Lets the endpoint picker of an InferencePool choose the endpoint of a request."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.type.metadata.v3 import metadata_pb2
from google.protobuf import any_pb2

from pilot.envoy.http_filter.endpoint_picker import CHOSEN, METADATA, SERVED
from pilot.envoy.resource import length_delimited
from pilot.envoy.well_known_types import pack

_Policy = cluster_pb2.LoadBalancingPolicy
_SELECTED_HOST_KEY = 2  # newer than the messages that we have; an Envoy that is older passes over it
_OVERRIDE_HOST, _ROUND_ROBIN = (
    "envoy.load_balancing_policies.override_host",
    "envoy.load_balancing_policies.round_robin",
)


def _key(name: str) -> metadata_pb2.MetadataKey:
    return metadata_pb2.MetadataKey(key=METADATA, path=[metadata_pb2.MetadataKey.PathSegment(key=name)])


def _policy(name: str, config: any_pb2.Any) -> cluster_pb2.LoadBalancingPolicy:
    return _Policy(
        policies=[
            _Policy.Policy(typed_extension_config=extension_pb2.TypedExtensionConfig(name=name, typed_config=config))
        ]
    )


def _chosen_by_picker() -> cluster_pb2.LoadBalancingPolicy:
    config = pack(
        override_host_pb2.OverrideHost(
            override_host_sources=[override_host_pb2.OverrideHost.OverrideHostSource(metadata=_key(CHOSEN))],
            fallback_policy=_policy(_ROUND_ROBIN, pack(round_robin_pb2.RoundRobin())),
        )
    )
    config.value += length_delimited(_SELECTED_HOST_KEY, _key(SERVED).SerializeToString(deterministic=True))
    return _policy(_OVERRIDE_HOST, config)


_CHOSEN_BY_PICKER = _chosen_by_picker()


def apply_override_host(cluster: cluster_pb2.Cluster) -> None:
    """Sets that requests go to the endpoint in their metadata, without one to each in turn. Weights of localities do not go with that."""
    if cluster.common_lb_config.WhichOneof("locality_config_specifier") is not None:
        cluster.common_lb_config.ClearField(cluster.common_lb_config.WhichOneof("locality_config_specifier"))
    cluster.lb_policy = cluster_pb2.Cluster.CLUSTER_PROVIDED
    cluster.load_balancing_policy.CopyFrom(_CHOSEN_BY_PICKER)
