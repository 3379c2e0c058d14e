"""One endpoint as Envoy's LbEndpoint."""
from __future__ import annotations

from collections.abc import Mapping

import msgspec
from envoy.config.core.v3 import address_pb2, base_pb2, health_check_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from google.protobuf import struct_pb2, wrappers_pb2

from pilot.lib.labels import LATEST, canonical_service
from pilot.model.endpoint import Endpoint, Health

LbEndpoint = endpoint_components_pb2.LbEndpoint
TRANSPORT_SOCKET_MATCH = "envoy.transport_socket_match"
TLS_MODE = "tlsMode"
ISTIO = "istio"

_STATUS = {
    Health.UNKNOWN: health_check_pb2.UNKNOWN,
    Health.HEALTHY: health_check_pb2.HEALTHY,
    Health.UNHEALTHY: health_check_pb2.UNHEALTHY,
    Health.DRAINING: health_check_pb2.DRAINING,
}


class Presentation(msgspec.Struct, frozen=True):
    """How endpoints are shown. `canonical`: the name and revision of the service that stand for those of its endpoints, with
    `namespace`, where a service outside of the mesh is labelled; else "".
    `draining_label`: a label by which a workload drains. `telemetry`: name workloads. `dual_stack`: show all addresses."""

    telemetry: bool = True
    dual_stack: bool = False
    draining_label: str = ""
    canonical: tuple[str, str] = ("", "")
    namespace: str = ""


def build_lb_endpoint(e: Endpoint, mtls: bool, show: Presentation) -> endpoint_components_pb2.LbEndpoint:
    """An endpoint; `mtls`: mesh mTLS is used where its workload takes it."""
    metadata: dict[str, struct_pb2.Struct] = {}
    if mtls and e.tls_mode not in ("", "disabled"):
        metadata[TRANSPORT_SOCKET_MATCH] = text_struct(TLS_MODE, e.tls_mode)
    if show.telemetry:
        metadata[ISTIO] = text_struct("workload", workload_text(e, show))
    return LbEndpoint(
        endpoint=endpoint_components_pb2.Endpoint(
            address=build_address(e.addresses[0], e.port),
            additional_addresses=[
                endpoint_components_pb2.Endpoint.AdditionalAddress(address=build_address(a, e.port)) for a in e.addresses[1:]
            ]
            if show.dual_stack
            else (),
        ),
        health_status=health_check_pb2.DRAINING if drains(e, show.draining_label) else _STATUS[e.health],
        load_balancing_weight=wrappers_pb2.UInt32Value(value=e.weight or 1),
        metadata=base_pb2.Metadata(filter_metadata=metadata),
    )


def build_address(address: str, port: int) -> address_pb2.Address:
    """A TCP address; a Unix socket where there is no port."""
    if not port:
        return address_pb2.Address(pipe=address_pb2.Pipe(path=address))
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=address, port_value=port))


def drains(e: Endpoint, draining_label: str) -> bool:
    """Whether it keeps the sessions that it has and takes no new ones."""
    return e.health is Health.DRAINING or (bool(draining_label) and any(k == draining_label and v for k, v in e.labels))


def workload_text(e: Endpoint, show: Presentation) -> str:
    """`workload;namespace;canonical name;canonical revision;cluster`: what Istio's telemetry takes its labels from."""
    labels: Mapping[str, str] = dict(e.labels)
    name, revision = show.canonical if show.canonical[0] else canonical_service(labels, e.workload)
    return ";".join((e.workload, show.namespace or e.namespace, name, "" if revision == LATEST else revision, e.cluster_id))


def text_struct(key: str, value: str) -> struct_pb2.Struct:
    """A struct of one text."""
    return struct_pb2.Struct(fields={key: struct_pb2.Value(string_value=value)})
