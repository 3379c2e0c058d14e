"""Builds services."""

from __future__ import annotations

from collections.abc import Collection

from pilot.config.protocol import Protocol
from pilot.envoy.ztunnel.message import build_gateway_address, packed
from pilot.mesh.model.address import AddressPort, LoadBalancing, NetworkAddress, ServiceAddress
from protos.istio import workload_pb2

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
