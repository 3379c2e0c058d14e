"""Load balancing of a cluster.

https://istio.io/latest/docs/reference/config/networking/destination-rule/#LoadBalancerSettings
"""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.type.metadata.v3 import metadata_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, wrappers_pb2

from pilot.config.networking.destination_rule import (
    ConsistentHashLB,
    LoadBalancerSettings,
    LocalityLoadBalancerSetting,
    WarmupConfiguration,
    ZoneAwareLoadBalancerSetting,
)
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.policy.outlier_detection import disable_panic
from pilot.envoy.http_filter.endpoint_picker import CHOSEN, METADATA, SERVED
from pilot.envoy.newer_fields import SELECTED_HOST_KEY
from pilot.envoy.well_known_types import build_duration, pack
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Service
from pilot.mesh.traffic.locality_lb import EffectiveLocality, effective_locality

_Cluster = cluster_pb2.Cluster
RING_SIZE = 1024  # Envoy's default minimum
LINEAR, MINIMUM_PERCENT = 1.0, 10.0
NO_RUNTIME_KEY = "("  # Envoy requires a key; nothing sets this one
_NO_SETTINGS = LoadBalancerSettings()


def apply_load_balancing(
    draft: ClusterDraft,
    settings: LoadBalancerSettings | None,
    service: Service,
    redis: bool,
    defaults: ClusterDefaults,
    proxy_type: NodeType,
) -> None:
    """Set the locality settings, then the algorithm.

    A cluster that uses the original destination or resolves hosts itself has no algorithm. `redis` is set if the port
    speaks Redis and a filter shards its traffic by key.
    """
    cluster = draft.cluster
    if draft.dynamic:
        return
    if sends_unhealthy(service, defaults):
        disable_panic(cluster)
    locality = effective_locality(settings, service, defaults.locality_lb, defaults.zone_aware_lb)
    if isinstance(locality.setting, ZoneAwareLoadBalancerSetting):
        if proxy_type is not NodeType.WAYPOINT:
            _apply_zones(cluster, locality.setting)
    elif defaults.locality_weighted or _weighs_localities(locality, cluster.HasField("outlier_detection")):
        cluster.common_lb_config.locality_weighted_lb_config.SetInParent()
    settings = settings or _NO_SETTINGS
    if draft.passes_through:
        cluster.lb_policy = _Cluster.CLUSTER_PROVIDED
    elif redis:
        cluster.lb_policy = _Cluster.MAGLEV
    elif settings.simple == "PASSTHROUGH":
        cluster.lb_policy = _Cluster.CLUSTER_PROVIDED
        cluster.type = _Cluster.ORIGINAL_DST
        cluster.ClearField("load_assignment")
    else:
        _apply_algorithm(cluster, settings)


def forces_unhealthy(service: Service, defaults: ClusterDefaults) -> bool:
    """Return whether clients receive unhealthy endpoints, regardless of DestinationRules.

    Traffic distribution, which prefers close endpoints, depends on the health of the endpoints.
    """
    return defaults.always_send_unhealthy or bool(service.traffic_distribution)


def sends_unhealthy(service: Service, defaults: ClusterDefaults) -> bool:
    """Return whether clients receive unhealthy endpoints, unless a DestinationRule disables this."""
    return defaults.send_unhealthy or forces_unhealthy(service, defaults)


def _apply_zones(cluster: cluster_pb2.Cluster, setting: ZoneAwareLoadBalancerSetting) -> None:
    zones = cluster.common_lb_config.zone_aware_lb_config
    zones.SetInParent()
    if setting.enabled is False:
        # Zone-aware routing is enabled in Envoy by default.

        zones.routing_enabled.SetInParent()
    if setting.min_cluster_size is not None:
        zones.min_cluster_size.CopyFrom(_size(setting.min_cluster_size))


def _weighs_localities(locality: EffectiveLocality, ejects_endpoints: bool) -> bool:
    """Return whether Envoy must apply the weights and priorities of localities.

    Failover only has an effect if endpoints can become unhealthy.
    """
    setting = locality.setting
    if not isinstance(setting, LocalityLoadBalancerSetting):
        return False
    fails_over = locality.forced or ejects_endpoints
    return bool(setting.distribute) or (fails_over and bool(setting.failover or setting.failover_priority))


def _apply_algorithm(cluster: cluster_pb2.Cluster, settings: LoadBalancerSettings) -> None:
    """Set the load balancing algorithm. The default is least request. A consistent hash takes precedence."""
    if settings.simple == "RANDOM":
        cluster.lb_policy = _Cluster.RANDOM
    elif settings.simple == "ROUND_ROBIN":
        cluster.lb_policy = _Cluster.ROUND_ROBIN
        if (slow_start := build_slow_start(settings)) is not None:
            cluster.round_robin_lb_config.slow_start_config.CopyFrom(slow_start)
    else:
        cluster.lb_policy = _Cluster.LEAST_REQUEST
        if (slow_start := build_slow_start(settings)) is not None:
            cluster.least_request_lb_config.slow_start_config.CopyFrom(slow_start)
    if settings.consistent_hash is not None:
        _apply_consistent_hash(cluster, settings.consistent_hash)


def _apply_consistent_hash(cluster: cluster_pb2.Cluster, settings: ConsistentHashLB) -> None:
    if settings.maglev is not None:
        cluster.lb_policy = _Cluster.MAGLEV
        if settings.maglev.table_size:
            cluster.maglev_lb_config.table_size.CopyFrom(_size(settings.maglev.table_size))
        return
    cluster.lb_policy = _Cluster.RING_HASH
    if settings.ring_hash is None:
        cluster.ring_hash_lb_config.minimum_ring_size.CopyFrom(_size(settings.minimum_ring_size or RING_SIZE))
    elif settings.ring_hash.minimum_ring_size:
        cluster.ring_hash_lb_config.minimum_ring_size.CopyFrom(_size(settings.ring_hash.minimum_ring_size))


def build_slow_start(settings: LoadBalancerSettings) -> cluster_pb2.Cluster.SlowStartConfig | None:
    """Return the slow start configuration for new endpoints, or None if the settings request no warmup."""
    if settings.warmup is not None:
        return _warmup(settings.warmup)
    if settings.warmup_duration_secs is not None:
        return _Cluster.SlowStartConfig(slow_start_window=build_duration(settings.warmup_duration_secs))
    return None


def _warmup(settings: WarmupConfiguration) -> cluster_pb2.Cluster.SlowStartConfig:
    aggression = LINEAR if settings.aggression is None else settings.aggression
    percent = MINIMUM_PERCENT if settings.minimum_percent is None else settings.minimum_percent
    return _Cluster.SlowStartConfig(
        slow_start_window=build_duration(settings.duration) if settings.duration is not None else None,
        aggression=base_pb2.RuntimeDouble(default_value=aggression, runtime_key=NO_RUNTIME_KEY),
        min_weight_percent=percent_pb2.Percent(value=percent),
    )


def _size(value: int) -> wrappers_pb2.UInt64Value:
    return wrappers_pb2.UInt64Value(value=value)


_Policy = cluster_pb2.LoadBalancingPolicy
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


def _build_picker_policy() -> cluster_pb2.LoadBalancingPolicy:
    config = pack(
        override_host_pb2.OverrideHost(
            override_host_sources=[override_host_pb2.OverrideHost.OverrideHostSource(metadata=_key(CHOSEN))],
            fallback_policy=_policy(_ROUND_ROBIN, pack(round_robin_pb2.RoundRobin())),
        )
    )
    config.value += SELECTED_HOST_KEY.encode(_key(SERVED))
    return _policy(_OVERRIDE_HOST, config)


_PICKER_POLICY = _build_picker_policy()


def apply_override_host(cluster: cluster_pb2.Cluster) -> None:
    """Let the endpoint picker of an InferencePool choose the endpoint. Its choice arrives in request metadata.

    The fallback is round robin. Envoy does not combine this policy with locality weights.
    """
    if cluster.common_lb_config.WhichOneof("locality_config_specifier") is not None:
        cluster.common_lb_config.ClearField(cluster.common_lb_config.WhichOneof("locality_config_specifier"))
    cluster.lb_policy = cluster_pb2.Cluster.CLUSTER_PROVIDED
    cluster.load_balancing_policy.CopyFrom(_PICKER_POLICY)
