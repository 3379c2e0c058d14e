"""Writes one endpoint as Envoy's LbEndpoint. It is filled in place, which costs a third of putting messages together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from envoy.config.core.v3 import address_pb2, base_pb2, health_check_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2

from pilot.envoy import names
from pilot.envoy.transport_socket.hbone_sockets import ORIGINAL_DST
from pilot.lib.labels import LATEST, canonical_service
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth

TRANSPORT_SOCKET_MATCH = "envoy.transport_socket_match"
TLS_MODE = "tlsMode"
ISTIO = "istio"

_STATUS = {
    EndpointHealth.UNKNOWN: health_check_pb2.UNKNOWN,
    EndpointHealth.HEALTHY: health_check_pb2.HEALTHY,
    EndpointHealth.UNHEALTHY: health_check_pb2.UNHEALTHY,
    EndpointHealth.DRAINING: health_check_pb2.DRAINING,
}


class EndpointTunnel(NamedTuple):
    """Describes the tunnel by which an endpoint is reached. `destination`: where it leads, "host:port"; `waypoint`: the address that it ends at,
    "" where that is the destination. `chosen`: the cluster has other transport sockets too, so that the endpoint says which one. `within`: the
    destination of a tunnel inside of it, "host:port", where it only leads to a gateway of another network. `listener`: where it begins."""

    destination: str
    waypoint: str = ""
    chosen: bool = True
    within: str = ""
    listener: str = names.CONNECT_ORIGINATE


class LocalityMember(NamedTuple):
    """Holds an endpoint as a client sees it. `mtls`: mesh mTLS is used where its workload takes it. `tunnel`: it is reached by one."""

    endpoint: Endpoint
    mtls: bool
    weight: int = 1
    tunnel: EndpointTunnel | None = None

    @property
    def transport(self) -> str:
        """Returns what its transport socket is chosen by: what its workload takes, "" for plain text."""
        if self.tunnel is not None and self.tunnel.chosen:
            return ""
        return self.endpoint.tls_mode if self.mtls and self.endpoint.tls_mode != "disabled" else ""


class LbEndpointOptions(msgspec.Struct, frozen=True):
    """Says how endpoints are shown. `canonical`: the name and revision of the service that stand for those of its endpoints, with
    `namespace`, where a service outside of the mesh is labelled; else "". `draining_label`: a label by which a workload drains.
    `telemetry`: name workloads. `dual_stack`: show all addresses."""

    telemetry: bool = True
    dual_stack: bool = False
    draining_label: str = ""
    canonical: tuple[str, str] = ("", "")
    namespace: str = ""


def fill_lb_endpoint(
    message: endpoint_components_pb2.LbEndpoint, member: LocalityMember, show: LbEndpointOptions
) -> None:
    """Fills an empty message with an endpoint."""
    e, tunnel = member.endpoint, member.tunnel
    if tunnel is not None:
        _fill_internal(message.endpoint.address, tunnel)
    else:
        fill_address(message.endpoint.address, e.addresses[0], e.port)
    if show.dual_stack and tunnel is None:
        for other in e.addresses[1:]:
            fill_address(message.endpoint.additional_addresses.add().address, other, e.port)
    if health := health_check_pb2.DRAINING if is_draining(e, show.draining_label) else _STATUS[e.health]:
        message.health_status = health
    message.load_balancing_weight.value = member.weight
    metadata = message.metadata
    metadata.SetInParent()
    if transport := member.transport:
        metadata.filter_metadata[TRANSPORT_SOCKET_MATCH].fields[TLS_MODE].string_value = transport
    if tunnel is not None:
        _tell_tunnel(metadata, tunnel)
    if show.telemetry:
        metadata.filter_metadata[ISTIO].fields["workload"].string_value = workload_text(e, show)


def _fill_internal(message: address_pb2.Address, tunnel: EndpointTunnel) -> None:
    """Fills an empty message with the listener where the tunnel begins; what tells endpoints apart is where they lead."""
    internal = message.envoy_internal_address
    internal.server_listener_name = names.INNER_CONNECT_ORIGINATE if tunnel.within else tunnel.listener
    internal.endpoint_id = tunnel.waypoint or tunnel.destination


def _tell_tunnel(metadata: base_pb2.Metadata, tunnel: EndpointTunnel) -> None:
    """Adds what the listener where the tunnel begins must know."""
    fields = metadata.filter_metadata[ORIGINAL_DST].fields
    fields["local"].string_value = tunnel.destination
    if tunnel.waypoint:
        fields["waypoint"].string_value = tunnel.waypoint
    if tunnel.within:
        inner = metadata.filter_metadata[ISTIO].fields["double_hbone"].struct_value
        inner.fields["hbone_target_address"].string_value = tunnel.within
    if tunnel.chosen:
        metadata.filter_metadata[TRANSPORT_SOCKET_MATCH].fields["tunnel"].string_value = "http"


def fill_address(message: address_pb2.Address, address: str, port: int) -> None:
    """Fills an empty message with a TCP address; with a Unix socket where there is no port."""
    if port:
        socket = message.socket_address
        socket.address, socket.port_value = address, port
    else:
        message.pipe.path = address


def is_draining(e: Endpoint, draining_label: str) -> bool:
    """Returns whether an endpoint keeps the sessions that it has and takes no new ones."""
    return e.health is EndpointHealth.DRAINING or (
        bool(draining_label) and any(k == draining_label and v for k, v in e.labels)
    )


def workload_text(e: Endpoint, show: LbEndpointOptions) -> str:
    """Returns `workload;namespace;canonical name;canonical revision;cluster`, from which Istio's telemetry takes its labels."""
    labels: Mapping[str, str] = dict(e.labels)
    name, revision = show.canonical if show.canonical[0] else canonical_service(labels, e.workload)
    return ";".join(
        (e.workload, show.namespace or e.namespace, name, "" if revision == LATEST else revision, e.cluster_id)
    )
