"""Builds the inbound clusters of a sidecar: one for each port that its workload listens on, which leads to the application."""

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


MAX_DURATION_SECONDS = 9_223_372_035  # seconds; as long as a duration can be


LOCALHOSTS = ("127.0.0.1", "::1")


class InboundClusterKey(NamedTuple):
    """Says what an inbound cluster is built for. `services`: the first one decides; () where only a Sidecar knows the port.

    `endpoint`: None for where the client went. `sidecar`: whose connection pool comes before that of rules.
    """

    number: int
    port: Port
    services: tuple[ServiceTarget, ...]
    rule_key: MergedRuleKey
    endpoint: DefaultEndpoint | None = None
    sidecar: ObjectKey | None = None
    declared_by: ObjectKey | None = None


def build_inbound(
    to: InboundClusterKey,
    services: tuple[Service, ...],
    policy: EffectivePolicy,
    rule: MergedRule | None,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
) -> cluster_pb2.Cluster:
    """Returns the cluster. `services`: those of the target's port, the first decides; the one that a Sidecar stands in for has no
    metadata."""
    name = names.inbound_cluster(to.number)
    first = services[0]
    pattern = defaults.inbound_stat_name
    stat_name = build_stat_name(pattern, first, to.port, target_port=to.number) if pattern else name
    cluster = _Cluster(
        name=name,
        type=_Cluster.STATIC if to.endpoint is not None else _Cluster.ORIGINAL_DST,
        alt_stat_name=with_stat_delimiter(stat_name),
    )
    cluster.common_lb_config.SetInParent()
    if to.endpoint is not None:
        _lead_to(cluster, to.endpoint)
    else:
        cluster.lb_policy = _Cluster.CLUSTER_PROVIDED
        if has_target_port_override(first, to.port):
            cluster.original_dst_lb_config.upstream_port_override.value = int(to.port.target)
        cluster.cleanup_interval.CopyFrom(duration_pb2.Duration(seconds=MAX_DURATION_SECONDS))
    draft = ClusterDraft(cluster)
    apply_protocol(draft, to.port.protocol, traits)
    if defaults.telemetry_label and not first.mesh_external:
        metadata.add_services(cluster, services)
        if rule is not None and rule.spec.traffic_policy is not None:
            metadata.set_rule(cluster, rule.key)
    apply_connection_pool(draft, policy, defaults)
    if to.endpoint is None or to.endpoint.address not in LOCALHOSTS:
        cluster.upstream_bind_config.CopyFrom(build_bind_config(inbound_bind_addresses(traits, defaults)))
    return draft.build()


def inbound_bind_addresses(traits: ClusterTraitsKey, defaults: ClusterDefaults) -> tuple[str, ...]:
    """Returns the addresses that connections to the application come from, by which iptables lets them through."""
    if traits.ipv4 and traits.ipv6:
        return (BIND_IPV4, BIND_IPV6) if defaults.dual_stack else (BIND_IPV4,)
    return (BIND_IPV4,) if traits.ipv4 else (BIND_IPV6,)


def _lead_to(cluster: cluster_pb2.Cluster, endpoint: DefaultEndpoint) -> None:
    """Gives the cluster one endpoint: a TCP address, or a Unix socket where the port is 0."""
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
    """Returns the policy of an inbound cluster: only limits, those of the Sidecar, else those of the rule, which the client keeps too,
    else the mesh's."""
    policy = effective_port_policy(
        rule.spec.traffic_policy if rule is not None else None, port, defaults.traffic_policy
    )
    return EffectivePolicy(connection_pool=pool or policy.connection_pool, retry_budget=policy.retry_budget)


def find_inbound_pool(sidecar: Sidecar | None, number: int) -> ConnectionPoolSettings | None:
    """Returns the connection pool that a Sidecar sets for a port of the workload, if it sets any."""
    if sidecar is None:
        return None
    own = (
        i.connection_pool
        for i in sidecar.ingress
        if i.port is not None and i.port.number == number and i.connection_pool is not None
    )
    return next(own, sidecar.inbound_connection_pool)


def placeholder_service(declared_by: ObjectKey, port: Port) -> Service:
    """Returns a service for a port that only a Sidecar knows."""
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
def _inbound_cluster(db: Mesh, to: InboundClusterKey, traits: ClusterTraitsKey) -> Resource | None:
    defaults = cluster_defaults(db)
    found: dict[str, Service] = {}
    for target in to.services:
        if target.port.number == to.port.number and (served := service(db, target.ref)) is not None:
            found.setdefault(served.hostname, served)
    services = tuple(found.values())
    if not services:
        if to.declared_by is None:
            return None
        services = (placeholder_service(to.declared_by, to.port),)
    rule = merged_rule(db, to.rule_key) if to.rule_key else None
    policy = inbound_policy(rule, to.port.number, find_inbound_pool(find_sidecar(db, to.sidecar), to.number), defaults)
    return Resource.of(CLUSTER, build_inbound(to, services, policy, rule, traits, defaults))


@derived
def inbound_clusters(db: Mesh, inbound: InboundFacet) -> Mapping[str, Resource]:
    """Returns the inbound clusters of a sidecar by name: one for each port that it takes traffic on."""
    traits = inbound_traits(inbound)
    keys = [_cluster_key(db, port, inbound, traits) for port in inbound_ports(db, inbound)]
    built = (_inbound_cluster(db, key, traits) for key in keys)
    return {r.name: r for r in built if r is not None}


def _rule_key(db: Mesh, inbound: InboundFacet, hostname: str) -> MergedRuleKey:
    """Returns what the rule for a service is made of; () for one that the scope of the workload does not see itself."""
    seen = scope_services(db, inbound.scope).get(hostname)
    return inbound_merged_rule_key(db, inbound.scope.namespace, seen.ref) if seen is not None else ()


def _cluster_key(db: Mesh, served: InboundPort, inbound: InboundFacet, traits: ClusterTraitsKey) -> InboundClusterKey:
    """Returns what the cluster of a port is made of."""
    first = served.targets[0] if served.targets else None
    rule_key = _rule_key(db, inbound, first.ref.hostname) if first is not None else ()
    key = InboundClusterKey(
        served.number, served.port, served.targets, rule_key, None, inbound.scope.sidecar, served.declared_by
    )
    if served.ingress is None:
        host = local_host(traits) if cluster_defaults(db).inbound_localhost else ""
        return key._replace(endpoint=DefaultEndpoint(host, served.number)) if host else key
    endpoint = parse_default_endpoint(served.ingress.default_endpoint, inbound.ips, traits)
    services = (ServiceTarget(first.ref, served.port, served.number),) if first is not None else ()
    return key._replace(endpoint=endpoint, services=services)


UNIX = "unix://"


LOCAL_IPV4, LOCAL_IPV6 = "127.0.0.1", "::1"


POD_IPV4, POD_IPV6 = "0.0.0.0", "::"


class DefaultEndpoint(NamedTuple):
    """Holds an address of the application; a Unix socket is its path, with port 0."""

    address: str
    port: int


def local_host(traits: ClusterTraitsKey) -> str:
    """Returns the loopback address of a proxy: IPv4's, where it has that."""
    return LOCAL_IPV4 if traits.ipv4 else LOCAL_IPV6


def parse_default_endpoint(text: str, ips: tuple[str, ...], traits: ClusterTraitsKey) -> DefaultEndpoint | None:
    """Returns the address in a `defaultEndpoint`; None where it has none, alone or beside a port: traffic goes where the client sent it.

    `ips`: the addresses of the proxy, which 0.0.0.0 and :: stand for; a loopback address is one of a family that the proxy has.
    """
    if text.startswith(UNIX):
        return DefaultEndpoint(text.removeprefix(UNIX), 0)
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal():
        return None
    address = _resolve(host.removeprefix("[").removesuffix("]"), ips, traits)
    return DefaultEndpoint(address, int(number)) if address else None


def _resolve(host: str, ips: tuple[str, ...], traits: ClusterTraitsKey) -> str:
    """Returns the address that a host stands for; "" for a host that is not allowed."""
    if host == POD_IPV4:
        return next((ip for ip in ips if is_address(ip) and ":" not in ip), LOCAL_IPV4)
    if host == POD_IPV6:
        return next((ip for ip in ips if ":" in ip), LOCAL_IPV6)
    if host == LOCAL_IPV4:
        return LOCAL_IPV4 if traits.ipv4 else LOCAL_IPV6
    if host == LOCAL_IPV6:
        return LOCAL_IPV6 if traits.ipv6 else LOCAL_IPV4
    return ""


# DOC """Reads where the ingress listener of a Sidecar sends its traffic.
#
# https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener
# """
