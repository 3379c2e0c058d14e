"""Builds the messages for the workloads and services of an ambient mesh."""

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

_APP_PROTOCOLS = {
    Protocol.HTTP: workload_pb2.HTTP11,
    Protocol.HTTP2: workload_pb2.HTTP2,
    Protocol.GRPC: workload_pb2.GRPC,
    Protocol.TLS: workload_pb2.TLS,
    Protocol.HTTPS: workload_pb2.TLS,
    Protocol.TCP: workload_pb2.TCP,
}


@functools.lru_cache(4096)
def packed(ip: str) -> bytes:
    """Return an IP address as 4 or 16 bytes."""
    return ipaddress.ip_address(ip).packed


def build_gateway_address(address: WaypointAddress | None) -> workload_pb2.GatewayAddress | None:
    """Return the message for the address at which a waypoint or gateway accepts HBONE, or None if `address` is None."""
    if address is None:
        return None
    if address.hostname:
        name = workload_pb2.NamespacedHostname(namespace=address.namespace, hostname=address.hostname)
        return workload_pb2.GatewayAddress(hostname=name, hbone_mtls_port=address.port)
    return workload_pb2.GatewayAddress(
        address=workload_pb2.NetworkAddress(network=address.network, address=packed(address.ip)),
        hbone_mtls_port=address.port,
    )


def build_workload(workload: WorkloadAddress) -> workload_pb2.Workload:
    """Return the message for a workload."""
    message = workload_pb2.Workload(
        uid=workload.uid,
        name=workload.name,
        namespace=workload.namespace,
        addresses=[packed(ip) for ip in workload.addresses],
        hostname=workload.hostname,
        network=workload.network,
        tunnel_protocol=workload_pb2.HBONE if workload.tunnels else workload_pb2.NONE,
        trust_domain=workload.trust_domain,
        service_account=workload.service_account,
        waypoint=build_gateway_address(workload.waypoint),
        network_gateway=build_gateway_address(workload.gateway),
        node=workload.node,
        canonical_name=workload.canonical[0],
        canonical_revision=workload.canonical[1],
        workload_name=workload.workload,
        # Older ztunnels require a type for all compute workloads, for which Istio always uses POD.
        workload_type=workload_pb2.POD if workload.is_compute else workload_pb2.DEPLOYMENT,
        native_tunnel=workload.native,
        authorization_policies=workload.policies,
        status=workload_pb2.HEALTHY if workload.healthy else workload_pb2.UNHEALTHY,
        cluster_id=workload.cluster,
        network_mode=workload_pb2.HOST_NETWORK if workload.host_network else workload_pb2.STANDARD,
        capacity=wrappers_pb2.UInt32Value(value=workload.capacity) if workload.capacity else None,
    )
    if workload.locality != Locality():
        message.locality.CopyFrom(
            workload_pb2.Locality(
                region=workload.locality.region, zone=workload.locality.zone, subzone=workload.locality.subzone
            )
        )
    if workload.tunnel is not None:
        message.application_tunnel.CopyFrom(
            workload_pb2.ApplicationTunnel(protocol=workload.tunnel.protocol, port=workload.tunnel.port)
        )
    for service in workload.services:
        message.services[service.service].ports.extend(
            workload_pb2.Port(service_port=number, target_port=target) for number, target in service.ports
        )
    return message


def build_service(service: ServiceAddress, identities: Collection[str] = ()) -> workload_pb2.Service:
    """Return the message for a service.

    `identities` are the identities of workloads that are not sent to ztunnels individually.
    """
    return workload_pb2.Service(
        name=service.name,
        namespace=service.namespace,
        hostname=service.hostname,
        addresses=[_address(item) for item in service.addresses],
        ports=[_port(item) for item in service.ports],
        subject_alt_names=sorted({*service.subject_alt_names, *identities})
        if identities
        else service.subject_alt_names,
        waypoint=build_gateway_address(service.waypoint),
        load_balancing=_balancing(service.balancing) if service.balancing is not None else None,
        ip_families=workload_pb2.IPFamilies.Value(service.families),
        canonical=service.canonical,
        ingress_use_waypoint=service.ingress,
        weighted_waypoints=[
            workload_pb2.WeightedWaypoint(destination=build_gateway_address(item.address), weight=item.weight)
            for item in service.weighted
        ],
        visibility=workload_pb2.Service.NAMESPACE if service.private else workload_pb2.Service.PUBLIC,
    )


def _address(address: NetworkAddress) -> workload_pb2.NetworkAddress:
    return workload_pb2.NetworkAddress(network=address.network, address=packed(address.ip), length=address.prefix)


def _port(port: AddressPort) -> workload_pb2.Port:
    protocol = _APP_PROTOCOLS.get(port.protocol, workload_pb2.UNKNOWN)
    return workload_pb2.Port(service_port=port.number, target_port=port.target, app_protocol=protocol)


def _balancing(balancing: LoadBalancing) -> workload_pb2.LoadBalancing:
    return workload_pb2.LoadBalancing(
        routing_preference=balancing.scopes,
        mode=balancing.mode,
        health_policy=workload_pb2.LoadBalancing.ALLOW_ALL
        if balancing.all_healths
        else workload_pb2.LoadBalancing.ONLY_HEALTHY,
    )
