"""Builds workloads."""

from __future__ import annotations

from google.protobuf import wrappers_pb2

from pilot.envoy.ztunnel.message import build_gateway_address, packed
from pilot.mesh.model.address import WorkloadAddress
from pilot.mesh.model.endpoint import Locality
from protos.istio import workload_pb2


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
