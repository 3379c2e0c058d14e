"""Builds workloads."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Collection

from google.protobuf import wrappers_pb2

from pilot.config.protocol import Protocol
from pilot.mesh.model.address import AddressPort, LoadBalancing, NetworkAddress, ServiceAddress, WorkloadAddress
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.waypoint import WaypointAddress
from protos.istio import workload_pb2


@functools.lru_cache(4096)
def packed(ip: str) -> bytes:
    """Returns the 4 or 16 bytes of an IP address."""
    return ipaddress.ip_address(ip).packed


def build_gateway_address(at: WaypointAddress | None) -> workload_pb2.GatewayAddress | None:
    """Returns where a waypoint or a gateway takes HBONE, None for nowhere."""
    if at is None:
        return None
    if at.hostname:
        name = workload_pb2.NamespacedHostname(namespace=at.namespace, hostname=at.hostname)
        return workload_pb2.GatewayAddress(hostname=name, hbone_mtls_port=at.port)
    return workload_pb2.GatewayAddress(
        address=workload_pb2.NetworkAddress(network=at.network, address=packed(at.ip)), hbone_mtls_port=at.port
    )


def build_workload(w: WorkloadAddress) -> workload_pb2.Workload:
    """Returns the message of a workload."""
    made = workload_pb2.Workload(
        uid=w.uid,
        name=w.name,
        namespace=w.namespace,
        addresses=[packed(ip) for ip in w.addresses],
        hostname=w.hostname,
        network=w.network,
        tunnel_protocol=workload_pb2.HBONE if w.tunnels else workload_pb2.NONE,
        trust_domain=w.trust_domain,
        service_account=w.service_account,
        waypoint=build_gateway_address(w.waypoint),
        network_gateway=build_gateway_address(w.gateway),
        node=w.node,
        canonical_name=w.canonical[0],
        canonical_revision=w.canonical[1],
        workload_name=w.workload,
        # Older ztunnels need a type of everything that runs; Istio calls all of them Pods.
        workload_type=workload_pb2.POD if w.is_compute else workload_pb2.DEPLOYMENT,
        native_tunnel=w.native,
        authorization_policies=w.policies,
        status=workload_pb2.HEALTHY if w.healthy else workload_pb2.UNHEALTHY,
        cluster_id=w.cluster,
        network_mode=workload_pb2.HOST_NETWORK if w.host_network else workload_pb2.STANDARD,
        capacity=wrappers_pb2.UInt32Value(value=w.capacity) if w.capacity else None,
    )
    if w.locality != Locality():
        made.locality.CopyFrom(
            workload_pb2.Locality(region=w.locality.region, zone=w.locality.zone, subzone=w.locality.subzone)
        )
    if w.tunnel is not None:
        made.application_tunnel.CopyFrom(workload_pb2.ApplicationTunnel(protocol=w.tunnel.protocol, port=w.tunnel.port))
    for one in w.services:
        made.services[one.service].ports.extend(
            workload_pb2.Port(service_port=number, target_port=target) for number, target in one.ports
        )
    return made


_APP_PROTOCOLS = {
    Protocol.HTTP: workload_pb2.HTTP11,
    Protocol.HTTP2: workload_pb2.HTTP2,
    Protocol.GRPC: workload_pb2.GRPC,
    Protocol.TLS: workload_pb2.TLS,
    Protocol.HTTPS: workload_pb2.TLS,
    Protocol.TCP: workload_pb2.TCP,
}


def build_service(s: ServiceAddress, identities: Collection[str] = ()) -> workload_pb2.Service:
    """Returns the message of a service; `identities` are those of workloads that ztunnels are not told of one by one."""
    return workload_pb2.Service(
        name=s.name,
        namespace=s.namespace,
        hostname=s.hostname,
        addresses=[_address(one) for one in s.addresses],
        ports=[_port(one) for one in s.ports],
        subject_alt_names=sorted({*s.subject_alt_names, *identities}) if identities else s.subject_alt_names,
        waypoint=build_gateway_address(s.waypoint),
        load_balancing=_balancing(s.balancing) if s.balancing is not None else None,
        ip_families=workload_pb2.IPFamilies.Value(s.families),
        canonical=s.canonical,
        ingress_use_waypoint=s.ingress,
        weighted_waypoints=[
            workload_pb2.WeightedWaypoint(destination=build_gateway_address(one.address), weight=one.weight)
            for one in s.weighted
        ],
        visibility=workload_pb2.Service.NAMESPACE if s.private else workload_pb2.Service.PUBLIC,
    )


def _address(one: NetworkAddress) -> workload_pb2.NetworkAddress:
    return workload_pb2.NetworkAddress(network=one.network, address=packed(one.ip), length=one.prefix)


def _port(one: AddressPort) -> workload_pb2.Port:
    protocol = _APP_PROTOCOLS.get(one.protocol, workload_pb2.UNKNOWN)
    return workload_pb2.Port(service_port=one.number, target_port=one.target, app_protocol=protocol)


def _balancing(one: LoadBalancing) -> workload_pb2.LoadBalancing:
    return workload_pb2.LoadBalancing(
        routing_preference=one.scopes,
        mode=one.mode,
        health_policy=workload_pb2.LoadBalancing.ALLOW_ALL
        if one.all_healths
        else workload_pb2.LoadBalancing.ONLY_HEALTHY,
    )
