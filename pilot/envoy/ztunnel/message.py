"""Parts that messages of workloads and of services have in common."""

from __future__ import annotations

import functools
import ipaddress

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
