"""The internal listener through which an east-west gateway forwards inner tunnels, which are the payload of tunnels.

The inner tunnels are not terminated here. They end at the workloads of a service, or at its waypoint if no waypoint in
the client's network has already applied the service's policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envoy.extensions.matching.common_inputs.network.v3 import network_inputs_pb2
from xds.core.v3 import extension_pb2
from xds.type.matcher.v3 import matcher_pb2

from pilot.config.protocol import Protocol
from pilot.derive import Gather, derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.cluster.vip_clusters import VipKey, vip_ports
from pilot.envoy.filter_state import REQUEST_SOURCE
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.filter_chain import build_chain
from pilot.envoy.listener.listener_filters import HTTP_INSPECTOR, ORIGINAL_DST, without_ports
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_options import listener_options
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble
from pilot.envoy.listener.waypoint.main_internal import ServiceMatch, chain_action, map_matcher, match_services
from pilot.envoy.names import TCP
from pilot.envoy.network_filter.tcp_filters import build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpSettings, single_cluster_route
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import pack
from pilot.mesh.ambient.east_west import AdmittedService, EastWestKey, admitted_service, admitted_services
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.tables.database import Mesh

_BY_SOURCE = extension_pb2.TypedExtensionConfig(
    name="request-source-filter-state", typed_config=pack(network_inputs_pb2.FilterStateInput(key=REQUEST_SOURCE))
)
_BLACK_HOLE = "virtualInbound-blackhole"


@derived
def _service_refs(db: Mesh, _: AddressFamiliesFacet) -> tuple[ServiceRef, ...]:
    return admitted_services(db)


_east_west_services: Gather[ServiceRef, [AddressFamiliesFacet], AdmittedService] = Gather(
    "east_west_services", _service_refs, admitted_service
)


def build_service_match(target: AdmittedService) -> ServiceMatch:
    """Return the match for a service.

    Connections that have not passed a waypoint are forwarded to the service's waypoint.
    """
    ports: dict[int, matcher_pb2.Matcher.OnMatch] = {}
    for port, _ in vip_ports(target.service):
        chain = chain_action(VipKey(target.service.ref, port.number, TCP).name)
        if target.entry is not None:
            entry = chain_action(VipKey(target.entry.ref, target.entry.port, TCP).name)
            by_source = map_matcher(
                _BY_SOURCE, {"waypoint": chain, "gateway": entry if target.entry.ingress else chain}
            )
            by_source.on_no_match.CopyFrom(entry)
            chain = matcher_pb2.Matcher.OnMatch(matcher=by_source)
        ports[port.number] = chain
    return ServiceMatch(target.service.hostname, target.addresses, ports)


def _chains(db: Mesh, key: EastWestKey, targets: Sequence[AdmittedService]) -> Iterator[ChainParts]:
    network, settings = (
        listener_options(db, key.listening).network,
        TcpSettings(idle_timeout=key.listening.idle_timeout),
    )
    for target in targets:
        for port, _ in vip_ports(target.service):
            cluster = VipKey(target.service.ref, port.number, TCP).name
            filters = build_tcp_filters(
                single_cluster_route(cluster, settings), Protocol.TCP, network, port.number, inbound=True, guarded=True
            )
            yield build_chain(None, filters, name=cluster)
    if not targets:
        filters = build_tcp_filters(
            single_cluster_route(names.BLACK_HOLE_CLUSTER), Protocol.TCP, network, 0, inbound=True
        )
        yield build_chain(None, filters, name=_BLACK_HOLE)


@derived
def east_west_listeners(db: Mesh, key: EastWestKey) -> Mapping[str, Resource]:
    """Return the internal listener that forwards inner tunnels."""
    targets = [target for target in _east_west_services(db, key.families).values() if any(vip_ports(target.service))]
    ports = sorted({port.number for target in targets for port, _ in vip_ports(target.service)})
    head = ListenerHead(
        names.MAIN_INTERNAL,
        (),
        0,
        inbound=True,
        filters=(ORIGINAL_DST, without_ports(HTTP_INSPECTOR, ports)),
        access_logs=build_listener_access_logs(access_logs(db, key.listening)),
        internal=True,
    )
    listener = build_listener_head(head)
    listener.filter_chain_matcher.CopyFrom(
        match_services(map(build_service_match, targets), by_name=True, fallback=chain_action(_BLACK_HOLE))
    )
    chains = tuple(_chains(db, key, targets))
    return {
        names.MAIN_INTERNAL: assemble(
            ListenerParts(names.MAIN_INTERNAL, listener.SerializeToString(deterministic=True), chains), b""
        )
    }
