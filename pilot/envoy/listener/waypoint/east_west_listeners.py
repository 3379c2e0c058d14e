"""Derives the listener of a gateway between networks for what comes out of tunnels, which are tunnels again.

Nobody reads them here: they end at the workloads of a service, or at its waypoint where no waypoint of the client's network has applied its policies.
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
from pilot.envoy.listener.listener_head import Frame, build_frame
from pilot.envoy.listener.listener_options import listener_options
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble
from pilot.envoy.listener.waypoint.main_internal import Case, by_map, match_services, to_chain
from pilot.envoy.names import TCP
from pilot.envoy.network_filter.tcp_filters import build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpSettings, to_cluster
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import pack
from pilot.mesh.ambient.east_west import Passage, PassageKey, passage, passed_services
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.tables.database import Mesh

_BY_SOURCE = extension_pb2.TypedExtensionConfig(
    name="request-source-filter-state", typed_config=pack(network_inputs_pb2.FilterStateInput(key=REQUEST_SOURCE))
)
_BLACK_HOLE = "virtualInbound-blackhole"


@derived
def _passed(db: Mesh, _: AddressFamiliesFacet) -> tuple[ServiceRef, ...]:
    return passed_services(db)


_passages: Gather[ServiceRef, [AddressFamiliesFacet], Passage] = Gather("passages into the network", _passed, passage)


def build_case(found: Passage) -> Case:
    """Returns what is chosen for a service: its chain, and the one of its waypoint for those whose requests have not come by one."""
    ports: dict[int, matcher_pb2.Matcher.OnMatch] = {}
    for port, _ in vip_ports(found.service):
        chain = to_chain(VipKey(found.service.ref, port.number, TCP).name)
        if found.entry is not None:
            entry = to_chain(VipKey(found.entry.ref, found.entry.port, TCP).name)
            chosen = by_map(_BY_SOURCE, {"waypoint": chain, "gateway": entry if found.entry.ingress else chain})
            chosen.on_no_match.CopyFrom(entry)
            chain = matcher_pb2.Matcher.OnMatch(matcher=chosen)
        ports[port.number] = chain
    return Case(found.service.hostname, found.addresses, ports)


def _chains(db: Mesh, by: PassageKey, passages: Sequence[Passage]) -> Iterator[ChainParts]:
    network, settings = listener_options(db, by.listening).network, TcpSettings(idle_timeout=by.listening.idle_timeout)
    for found in passages:
        for port, _ in vip_ports(found.service):
            cluster = VipKey(found.service.ref, port.number, TCP).name
            filters = build_tcp_filters(
                to_cluster(cluster, settings), Protocol.TCP, network, port.number, inbound=True, guarded=True
            )
            yield build_chain(None, filters, name=cluster)
    if not passages:
        filters = build_tcp_filters(to_cluster(names.BLACK_HOLE_CLUSTER), Protocol.TCP, network, 0, inbound=True)
        yield build_chain(None, filters, name=_BLACK_HOLE)


@derived
def passage_listeners(db: Mesh, by: PassageKey) -> Mapping[str, Resource]:
    """Returns the listener."""
    passages = [found for found in _passages(db, by.families).values() if any(vip_ports(found.service))]
    known = sorted({port.number for found in passages for port, _ in vip_ports(found.service)})
    frame = Frame(
        names.MAIN_INTERNAL,
        (),
        0,
        inbound=True,
        filters=(ORIGINAL_DST, without_ports(HTTP_INSPECTOR, known)),
        access_logs=build_listener_access_logs(access_logs(db, by.listening)),
        internal=True,
    )
    head = build_frame(frame)
    head.filter_chain_matcher.CopyFrom(
        match_services(map(build_case, passages), by_name=True, nothing=to_chain(_BLACK_HOLE))
    )
    chains = tuple(_chains(db, by, passages))
    return {
        names.MAIN_INTERNAL: assemble(
            ListenerParts(names.MAIN_INTERNAL, head.SerializeToString(deterministic=True), chains), b""
        )
    }
