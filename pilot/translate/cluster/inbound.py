"""Inbound clusters of a sidecar: one for each port that its workload listens on, which leads to the application."""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from google.protobuf import duration_pb2

from pilot.derive import derived
from pilot.model.config.destination_rule import ConnectionPoolSettings
from pilot.model.config.object import ObjectKey
from pilot.model.config.sidecar import IstioIngressListener, Sidecar
from pilot.model.facets import Inbound, ServiceTarget
from pilot.model.inputs import Mesh
from pilot.model.protocol import parse_protocol
from pilot.model.service import Port, Registry, Resolution, Service
from pilot.model.views.destination_rules import MergedRule, Sources, inbound_rule_ref, merged_rule
from pilot.model.views.imports import scope_services
from pilot.model.views.services import service
from pilot.model.views.sidecar_scope import find_sidecar
from pilot.translate import names
from pilot.translate.cluster import metadata
from pilot.translate.cluster.build import has_other_port
from pilot.translate.cluster.connection_pool import apply_connection_pool, apply_protocol, bind_addresses
from pilot.translate.cluster.default_endpoint import Endpoint, local_host, parse_default_endpoint
from pilot.translate.cluster.defaults import Defaults, Traits, cluster_defaults, inbound_traits
from pilot.translate.cluster.draft import Draft
from pilot.translate.cluster.passthrough import BIND_IPV4, BIND_IPV6
from pilot.translate.cluster.stat_name import build_stat_name, delimited
from pilot.translate.cluster.traffic_policy import Policy, build_policy
from pilot.translate.resource import CLUSTER, Resource

_Cluster = cluster_pb2.Cluster
NEVER = 9_223_372_035  # seconds; as long as a duration can be
LOCALHOSTS = ("127.0.0.1", "::1")


class Target(NamedTuple):
    """What an inbound cluster is built for. `services`: the first one decides; () where only a Sidecar knows the port.

    `endpoint`: None for where the client went. `sidecar`: whose connection pool comes before that of rules.
    """

    number: int
    port: Port
    services: tuple[ServiceTarget, ...]
    sources: Sources
    endpoint: Endpoint | None = None
    sidecar: ObjectKey | None = None
    declared_by: ObjectKey | None = None


def build_inbound(
    to: Target, services: tuple[Service, ...], policy: Policy, rule: MergedRule | None, traits: Traits, defaults: Defaults
) -> cluster_pb2.Cluster:
    """The cluster. `services`: those of the target's port, the first decides; the one that a Sidecar stands in for has no metadata."""
    name = names.inbound_cluster(to.number)
    first = services[0]
    pattern = defaults.inbound_stat_name
    stat_name = build_stat_name(pattern, first, to.port, target_port=to.number) if pattern else name
    cluster = _Cluster(name=name, type=_Cluster.STATIC if to.endpoint is not None else _Cluster.ORIGINAL_DST, alt_stat_name=delimited(stat_name))
    cluster.common_lb_config.SetInParent()
    if to.endpoint is not None:
        _lead_to(cluster, to.endpoint)
    else:
        cluster.lb_policy = _Cluster.CLUSTER_PROVIDED
        if has_other_port(first, to.port):
            cluster.original_dst_lb_config.upstream_port_override.value = int(to.port.target)
        cluster.cleanup_interval.CopyFrom(duration_pb2.Duration(seconds=NEVER))
    draft = Draft(cluster)
    apply_protocol(draft, to.port.protocol, traits)
    if defaults.telemetry_label and not first.mesh_external:
        metadata.name_services(cluster, services)
        if rule is not None and rule.spec.traffic_policy is not None:
            metadata.name_rule(cluster, rule.key)
    apply_connection_pool(draft, policy, defaults)
    if to.endpoint is None or to.endpoint.address not in LOCALHOSTS:
        cluster.upstream_bind_config.CopyFrom(bind_addresses(bind_ips(traits, defaults)))
    return draft.build()


def bind_ips(traits: Traits, defaults: Defaults) -> tuple[str, ...]:
    """The addresses that connections to the application come from, by which iptables lets them through."""
    if traits.ipv4 and traits.ipv6:
        return (BIND_IPV4, BIND_IPV6) if defaults.dual_stack else (BIND_IPV4,)
    return (BIND_IPV4,) if traits.ipv4 else (BIND_IPV6,)


def _lead_to(cluster: cluster_pb2.Cluster, endpoint: Endpoint) -> None:
    address = address_pb2.Address()
    if endpoint.port:
        address.socket_address.address = endpoint.address
        address.socket_address.port_value = endpoint.port
    else:
        address.pipe.path = endpoint.address
    member = endpoint_components_pb2.LbEndpoint(endpoint=endpoint_components_pb2.Endpoint(address=address))
    cluster.load_assignment.cluster_name = cluster.name
    cluster.load_assignment.endpoints.add().lb_endpoints.append(member)


def inbound_policy(rule: MergedRule | None, port: int, pool: ConnectionPoolSettings | None, defaults: Defaults) -> Policy:
    """Only limits count here: those of the Sidecar, else those of the rule, which the client keeps too, else the mesh's."""
    policy = build_policy(rule.spec.traffic_policy if rule is not None else None, port, defaults.traffic_policy)
    return Policy(connection_pool=pool or policy.connection_pool, retry_budget=policy.retry_budget)


def find_pool(sidecar: Sidecar | None, number: int) -> ConnectionPoolSettings | None:
    """The connection pool that a Sidecar sets for a port of the workload."""
    if sidecar is None:
        return None
    own = (i.connection_pool for i in sidecar.ingress if i.port is not None and i.port.number == number and i.connection_pool is not None)
    return next(own, sidecar.inbound_connection_pool)


def stand_in(declared_by: ObjectKey, port: Port) -> Service:
    """The service of a port that only a Sidecar knows."""
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
def _inbound_cluster(db: Mesh, to: Target, traits: Traits) -> Resource | None:
    defaults = cluster_defaults(db)
    found: dict[str, Service] = {}
    for target in to.services:
        if target.port.number == to.port.number and (served := service(db, target.ref)) is not None:
            found.setdefault(served.hostname, served)
    services = tuple(found.values())
    if not services:
        if to.declared_by is None:
            return None
        services = (stand_in(to.declared_by, to.port),)
    rule = merged_rule(db, to.sources) if to.sources else None
    sidecar = find_sidecar(db, to.sidecar)
    policy = inbound_policy(rule, to.port.number, find_pool(sidecar, to.number), defaults)
    return Resource.of(CLUSTER, build_inbound(to, services, policy, rule, traits, defaults))


@derived
def inbound_clusters(db: Mesh, inbound: Inbound) -> Mapping[str, Resource]:
    """Of a sidecar: by its services, or where its Sidecar has ingress listeners by these."""
    traits = inbound_traits(inbound)
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    ingress = sidecar.ingress if sidecar is not None else ()
    targets: list[Target] = []
    if ingress:
        if db.settings.listeners.merge_ingress_with_services:
            declared = {i.port.number for i in ingress if i.port is not None}
            targets += [t for t in _service_targets(db, inbound, traits) if t.number not in declared]
        targets += [t for i in ingress if (t := _ingress_target(db, inbound, traits, i)) is not None]
    elif inbound.interception != "NONE":
        targets = _service_targets(db, inbound, traits)
    built = {to.number: _inbound_cluster(db, to, traits) for to in reversed(targets)}
    return {r.name: r for number in dict.fromkeys(t.number for t in targets) if (r := built[number]) is not None}


def _rule_sources(db: Mesh, inbound: Inbound, hostname: str) -> Sources:
    """Of the rule for a service; only for one that the scope of the workload sees itself."""
    seen = scope_services(db, inbound.scope).get(hostname)
    return inbound_rule_ref(db, inbound.scope.namespace, seen.ref) if seen is not None else ()


def _service_targets(db: Mesh, inbound: Inbound, traits: Traits) -> list[Target]:
    by_port: dict[int, list[ServiceTarget]] = {}
    for target in inbound.targets:
        by_port.setdefault(target.target_port, []).append(target)
    host = local_host(traits) if cluster_defaults(db).inbound_localhost else ""
    return [
        Target(
            number, found[0].port, tuple(found), _rule_sources(db, inbound, found[0].ref.hostname), Endpoint(host, number) if host else None,
            inbound.scope.sidecar,
        )
        for number, found in by_port.items()
    ]  # fmt: skip


def _ingress_target(db: Mesh, inbound: Inbound, traits: Traits, listener: IstioIngressListener) -> Target | None:
    declared_by = inbound.scope.sidecar
    if listener.port is None or declared_by is None:
        return None
    endpoint = parse_default_endpoint(listener.default_endpoint, inbound.ips, traits)
    if listener.default_endpoint and endpoint is None:
        return None
    number = listener.port.number
    port = Port(listener.port.name, number, parse_protocol(listener.port.protocol))
    served = next((t for t in inbound.targets if t.target_port == number), None)
    services = (ServiceTarget(served.ref, port, number),) if served is not None else ()
    sources = _rule_sources(db, inbound, served.ref.hostname) if served is not None else ()
    return Target(number, port, services, sources, endpoint, declared_by, declared_by)
