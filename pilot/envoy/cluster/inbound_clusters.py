"""Builds a sidecar's inbound clusters: one for each port of the workload. The clusters forward to the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from google.protobuf import duration_pb2

from pilot.config.networking.destination_rule import ConnectionPoolSettings
from pilot.config.networking.sidecar import Sidecar
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.cluster import cluster_metadata as metadata
from pilot.envoy.cluster.builtin_clusters import BIND_IPV4, BIND_IPV6
from pilot.envoy.cluster.cluster_builder import has_target_port_override
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults, cluster_defaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey, inbound_traits
from pilot.envoy.cluster.policy.connection_pool import apply_connection_pool, apply_protocol, build_bind_config
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy, effective_port_policy
from pilot.envoy.cluster.stat_name import build_stat_name, with_stat_delimiter
from pilot.envoy.resource import Resource
from pilot.lib.hosts import is_address
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.model.facets import InboundFacet, ServiceTarget
from pilot.mesh.model.service import Port, Registry, Resolution, Service
from pilot.mesh.registry.services import service
from pilot.mesh.scope.inbound_ports import InboundPort, inbound_ports
from pilot.mesh.scope.sidecar_scope import find_sidecar
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import MergedRule, MergedRuleKey, inbound_merged_rule_key, merged_rule
from pilot.mesh.traffic.imports import scope_services

_Cluster = cluster_pb2.Cluster
MAX_DURATION_SECONDS = 9_223_372_035
LOCALHOSTS = ("127.0.0.1", "::1")


class InboundClusterKey(NamedTuple):
    """The key of an inbound cluster: its port, and the services and DestinationRules that configure it.

    The first of `services` determines the settings. `services` is empty if only a Sidecar declares the port. `endpoint`
    is None for the original destination. The connection pool of `sidecar` takes precedence over those of
    DestinationRules.
    """

    number: int
    port: Port
    services: tuple[ServiceTarget, ...]
    rule_key: MergedRuleKey
    endpoint: DefaultEndpoint | None = None
    sidecar: ObjectKey | None = None
    declared_by: ObjectKey | None = None


def build_inbound(
    key: InboundClusterKey,
    services: tuple[Service, ...],
    policy: EffectivePolicy,
    rule: MergedRule | None,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
) -> cluster_pb2.Cluster:
    """Return the inbound cluster for a key.

    The first of `services` determines its settings. Its metadata lists all of them, except the placeholder for a port
    that only a Sidecar declares.
    """
    name = names.inbound_cluster(key.number)
    first_service = services[0]
    pattern = defaults.inbound_stat_name
    stat_name = build_stat_name(pattern, first_service, key.port, target_port=key.number) if pattern else name
    cluster = _Cluster(
        name=name,
        type=_Cluster.STATIC if key.endpoint is not None else _Cluster.ORIGINAL_DST,
        alt_stat_name=with_stat_delimiter(stat_name),
    )
    cluster.common_lb_config.SetInParent()
    if key.endpoint is not None:
        _add_endpoint(cluster, key.endpoint)
    else:
        cluster.lb_policy = _Cluster.CLUSTER_PROVIDED
        if has_target_port_override(first_service, key.port):
            cluster.original_dst_lb_config.upstream_port_override.value = int(key.port.target)
        cluster.cleanup_interval.CopyFrom(duration_pb2.Duration(seconds=MAX_DURATION_SECONDS))
    draft = ClusterDraft(cluster)
    apply_protocol(draft, key.port.protocol, traits)
    if defaults.telemetry_label and not first_service.mesh_external:
        metadata.add_services(cluster, services)
        if rule is not None and rule.spec.traffic_policy is not None:
            metadata.set_rule(cluster, rule.key)
    apply_connection_pool(draft, policy, defaults)
    if key.endpoint is None or key.endpoint.address not in LOCALHOSTS:
        cluster.upstream_bind_config.CopyFrom(build_bind_config(inbound_bind_addresses(traits, defaults)))
    return draft.build()


def inbound_bind_addresses(traits: ClusterTraitsKey, defaults: ClusterDefaults) -> tuple[str, ...]:
    """Return the source addresses of connections to the application.

    Iptables does not redirect connections from these addresses.
    """
    if traits.ipv4 and traits.ipv6:
        return (BIND_IPV4, BIND_IPV6) if defaults.dual_stack else (BIND_IPV4,)
    return (BIND_IPV4,) if traits.ipv4 else (BIND_IPV6,)


def _add_endpoint(cluster: cluster_pb2.Cluster, endpoint: DefaultEndpoint) -> None:
    """Add one endpoint: a TCP address, or a Unix socket if the port is 0."""
    address = address_pb2.Address()
    if endpoint.port:
        address.socket_address.address = endpoint.address
        address.socket_address.port_value = endpoint.port
    else:
        address.pipe.path = endpoint.address
    member = endpoint_components_pb2.LbEndpoint(endpoint=endpoint_components_pb2.Endpoint(address=address))
    cluster.load_assignment.cluster_name = cluster.name
    cluster.load_assignment.endpoints.add().lb_endpoints.append(member)


def inbound_policy(
    rule: MergedRule | None, port: int, pool: ConnectionPoolSettings | None, defaults: ClusterDefaults
) -> EffectivePolicy:
    """Return the policy of an inbound cluster, which only sets limits.

    The connection pool of the Sidecar comes first, then that of the DestinationRule, and then the default of the mesh
    config. Clients enforce the connection pool of the DestinationRule too.
    """
    policy = effective_port_policy(
        rule.spec.traffic_policy if rule is not None else None, port, defaults.traffic_policy
    )
    return EffectivePolicy(connection_pool=pool or policy.connection_pool, retry_budget=policy.retry_budget)


def find_inbound_pool(sidecar: Sidecar | None, number: int) -> ConnectionPoolSettings | None:
    """Return the connection pool that a Sidecar sets for a port of the workload, or None if it sets none."""
    return sidecar.inbound_pools.get(number, sidecar.inbound_connection_pool) if sidecar is not None else None


def placeholder_service(declared_by: ObjectKey, port: Port) -> Service:
    """Return a placeholder service for a port that only a Sidecar declares."""
    return Service(
        hostname=f"{declared_by.name}.{declared_by.namespace}",
        namespace=declared_by.namespace,
        name=declared_by.name,
        registry=Registry.EXTERNAL,
        source=declared_by,
        ports=(port,),
        resolution=Resolution.CLIENT_SIDE_LB,
        mesh_external=True,
    )


@derived
def _inbound_cluster(db: Mesh, key: InboundClusterKey, traits: ClusterTraitsKey) -> Resource | None:
    defaults = cluster_defaults(db)
    by_hostname: dict[str, Service] = {}
    for target in key.services:
        if target.port.number == key.port.number and (row := service(db, target.ref)) is not None:
            by_hostname.setdefault(row.hostname, row)
    services = tuple(by_hostname.values())
    if not services:
        if key.declared_by is None:
            return None
        services = (placeholder_service(key.declared_by, key.port),)
    rule = merged_rule(db, key.rule_key) if key.rule_key else None
    policy = inbound_policy(
        rule, key.port.number, find_inbound_pool(find_sidecar(db, key.sidecar), key.number), defaults
    )
    return Resource.of(CLUSTER, build_inbound(key, services, policy, rule, traits, defaults))


@derived
def inbound_clusters(db: Mesh, inbound: InboundFacet) -> Mapping[str, Resource]:
    """Return a sidecar's inbound clusters, keyed by name. There is one for each port that accepts traffic."""
    traits = inbound_traits(inbound)
    keys = [_cluster_key(db, port, inbound, traits) for port in inbound_ports(db, inbound)]
    clusters = (_inbound_cluster(db, key, traits) for key in keys)
    return {r.name: r for r in clusters if r is not None}


def _rule_key(db: Mesh, inbound: InboundFacet, hostname: str) -> MergedRuleKey:
    """Return the key of the merged DestinationRule for a service, or () if the workload's scope lacks the service."""
    item = scope_services(db, inbound.scope).get(hostname)
    return inbound_merged_rule_key(db, inbound.scope.namespace, item.ref) if item is not None else ()


def _cluster_key(
    db: Mesh, inbound_port: InboundPort, inbound: InboundFacet, traits: ClusterTraitsKey
) -> InboundClusterKey:
    """Return the key of the inbound cluster for a port."""
    first = inbound_port.targets[0] if inbound_port.targets else None
    rule_key = _rule_key(db, inbound, first.ref.hostname) if first is not None else ()
    key = InboundClusterKey(
        inbound_port.number,
        inbound_port.port,
        inbound_port.targets,
        rule_key,
        None,
        inbound.scope.sidecar,
        inbound_port.declared_by,
    )
    if inbound_port.ingress is None:
        host = local_host(traits) if cluster_defaults(db).inbound_localhost else ""
        return key._replace(endpoint=DefaultEndpoint(host, inbound_port.number)) if host else key
    endpoint = parse_default_endpoint(inbound_port.ingress.default_endpoint, inbound.ips, traits)
    services = (ServiceTarget(first.ref, inbound_port.port, inbound_port.number),) if first is not None else ()
    return key._replace(endpoint=endpoint, services=services)


UNIX = "unix://"
LOCAL_IPV4, LOCAL_IPV6 = "127.0.0.1", "::1"
POD_IPV4, POD_IPV6 = "0.0.0.0", "::"


class DefaultEndpoint(NamedTuple):
    """An address of the application. For a Unix socket, `address` is the path and `port` is 0."""

    address: str
    port: int


def local_host(traits: ClusterTraitsKey) -> str:
    """Return the loopback address for a proxy. IPv4 takes precedence."""
    return LOCAL_IPV4 if traits.ipv4 else LOCAL_IPV6


def parse_default_endpoint(text: str, ips: tuple[str, ...], traits: ClusterTraitsKey) -> DefaultEndpoint | None:
    """Return the address in a Sidecar's `defaultEndpoint`, or None to forward to the original destination.

    `ips` are the proxy's addresses, which replace 0.0.0.0 and ::. A loopback address of an IP family that the proxy
    lacks is replaced by the loopback address of the other family.
    https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener
    """
    if text.startswith(UNIX):
        return DefaultEndpoint(text.removeprefix(UNIX), 0)
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal():
        return None
    address = _resolve(host.removeprefix("[").removesuffix("]"), ips, traits)
    return DefaultEndpoint(address, int(number)) if address else None


def _resolve(host: str, ips: tuple[str, ...], traits: ClusterTraitsKey) -> str:
    """Return the address for the host of a `defaultEndpoint`, or "" if the host is not allowed."""
    if host == POD_IPV4:
        return next((ip for ip in ips if is_address(ip) and ":" not in ip), LOCAL_IPV4)
    if host == POD_IPV6:
        return next((ip for ip in ips if ":" in ip), LOCAL_IPV6)
    if host == LOCAL_IPV4:
        return LOCAL_IPV4 if traits.ipv4 else LOCAL_IPV6
    if host == LOCAL_IPV6:
        return LOCAL_IPV6 if traits.ipv6 else LOCAL_IPV4
    return ""
