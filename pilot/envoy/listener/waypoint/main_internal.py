"""Derives the listener of a waypoint for what comes out of tunnels: a connection's destination chooses the chain.

That is an address and port of a service, or of a workload behind the waypoint. Where addresses of several networks may be equal, a tunnel names the
service itself, and its name comes first. https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/advanced/matching/matching_api
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.matching.common_inputs.network.v3 import network_inputs_pb2
from google.protobuf import wrappers_pb2
from xds.core.v3 import cidr_pb2, extension_pb2
from xds.type.matcher.v3 import ip_pb2, matcher_pb2

from pilot.derive import Gather, derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.filter_state import AUTHORITY
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.listener_filters import HTTP_INSPECTOR, ORIGINAL_DST, TLS_INSPECTOR, without_ports
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble, traced
from pilot.envoy.listener.manager_template import tracing_part
from pilot.envoy.listener.waypoint.waypoint_chains import (
    DIRECT_HTTP,
    DIRECT_TCP,
    ServiceChains,
    chain_names,
    direct_chains,
    service_chains,
)
from pilot.envoy.names import HTTP, TCP
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import build_cidr, pack
from pilot.lib.addresses import joined
from pilot.mesh.ambient.waypoint_addresses import addresses_behind
from pilot.mesh.model.ambient import uses_double_hbone
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.waypoint import ServingKey, WaypointFacet, served_services, serving_key
from pilot.mesh.tables.database import Mesh

_Matcher = matcher_pb2.Matcher
_OnMatch = matcher_pb2.Matcher.OnMatch
_NEVER = "0"  # no connection is for this port


def _input(name: str, message: object) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(message))


_PORT = _input("port", network_inputs_pb2.DestinationPortInput())
_ADDRESS = _input("ip", network_inputs_pb2.DestinationIPInput())
_PROTOCOL = _input("application-protocol", network_inputs_pb2.ApplicationProtocolInput())
_NAME = _input("authority-filter-state", network_inputs_pb2.FilterStateInput(key=AUTHORITY))


# -- matchers ----------------------------------------------------------------------------------------------------------------


def chain_action(name: str) -> matcher_pb2.Matcher.OnMatch:
    """Returns what chooses a chain."""
    return _OnMatch(
        action=extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(wrappers_pb2.StringValue(value=name)))
    )


def map_matcher(
    source: extension_pb2.TypedExtensionConfig, cases: Mapping[str, matcher_pb2.Matcher.OnMatch]
) -> matcher_pb2.Matcher:
    """Returns what chooses by a value."""
    matcher = _Matcher()
    matcher.matcher_tree.input.CopyFrom(source)
    for value, case in cases.items():
        matcher.matcher_tree.exact_match_map.map[value].CopyFrom(case)
    return matcher


def protocol_matcher(chains: Mapping[str, str], http10: bool) -> matcher_pb2.Matcher.OnMatch:
    """Returns what chooses by what is spoken, which is looked at where there is a chain for HTTP and one for the rest."""
    if len(chains) == 1:
        return chain_action(next(iter(chains.values())))
    spoken = ("h2c", "http/1.1", *(("http/1.0",) if http10 else ()))
    matcher = map_matcher(_PROTOCOL, {f"'{alpn}'": chain_action(chains[HTTP]) for alpn in spoken})
    matcher.on_no_match.CopyFrom(chain_action(chains[TCP]))
    return _OnMatch(matcher=matcher)


def _range(addresses: Iterable[str], then: matcher_pb2.Matcher.OnMatch) -> ip_pb2.IPMatcher.IPRangeMatcher:
    blocks = [built for address in addresses if (built := build_cidr(address)) is not None]
    ranges = [cidr_pb2.CidrRange(address_prefix=b.address_prefix, prefix_len=b.prefix_len) for b in blocks]
    return ip_pb2.IPMatcher.IPRangeMatcher(ranges=ranges, on_match=then)


class ServiceMatch(NamedTuple):
    """Says what is chosen for a service, by its ports."""

    hostname: str
    addresses: tuple[str, ...]
    ports: Mapping[int, matcher_pb2.Matcher.OnMatch]


def build_matcher(
    services: Sequence[ServiceChains], workloads: Sequence[str], by_name: bool, http10: bool
) -> matcher_pb2.Matcher:
    """Returns what chooses the chain of a connection. `workloads`: addresses of those behind the waypoint; `by_name`: names of services count, and
    come first."""
    cases = (
        ServiceMatch(
            s.hostname, s.addresses, {port.number: protocol_matcher(chains, http10) for port, chains in chain_names(s)}
        )
        for s in services
    )
    direct = [_range(workloads, protocol_matcher({TCP: DIRECT_TCP, HTTP: DIRECT_HTTP}, http10))] if workloads else []
    return match_services(cases, by_name, chain_action(DIRECT_TCP), direct)


def match_services(
    cases: Iterable[ServiceMatch],
    by_name: bool,
    nothing: matcher_pb2.Matcher.OnMatch,
    others: Iterable[ip_pb2.IPMatcher.IPRangeMatcher] = (),
) -> matcher_pb2.Matcher:
    """Returns what chooses by the name of a service, or by its address and port, then by `others`; `nothing` is there, and never chosen, where there
    is nothing to choose by."""
    addresses = ip_pb2.IPMatcher()
    named: dict[str, matcher_pb2.Matcher.OnMatch] = {}
    for case in cases:
        if not case.addresses or not case.ports:
            continue
        then = _OnMatch(matcher=map_matcher(_PORT, {str(number): chosen for number, chosen in case.ports.items()}))
        addresses.range_matchers.append(_range(case.addresses, then))
        named.update({joined(case.hostname, number): chosen for number, chosen in case.ports.items()})
    addresses.range_matchers.extend(others)
    if not addresses.range_matchers:
        return map_matcher(_PORT, {_NEVER: nothing})
    matcher = _Matcher()
    matcher.matcher_tree.input.CopyFrom(_ADDRESS)
    matcher.matcher_tree.custom_match.CopyFrom(_input("ip", addresses))
    if not named or not by_name:
        return matcher
    first = map_matcher(_NAME, named)
    first.on_no_match.matcher.CopyFrom(matcher)
    return first


# -- inspection --------------------------------------------------------------------------------------------------------------


def build_waypoint_inspectors(
    services: Iterable[ServiceChains], workloads: bool
) -> list[listener_components_pb2.ListenerFilter]:
    """Returns what looks at connections: HTTP is looked for only where it is not known, for there a server that speaks first would wait in vain. A
    workload that is addressed directly may have any port."""
    spoken: dict[int, set[str]] = {}
    tls: dict[int, bool] = {}
    for port in (p for served in services for p in served.ports):
        spoken.setdefault(port.number, set()).update(port.spoken)
        tls[port.number] = tls.get(port.number, False) or port.tls
    known = [] if workloads else sorted(number for number, found in spoken.items() if len(found) == 1)
    found = [without_ports(HTTP_INSPECTOR, known)]
    if any(tls.values()):
        found.append(without_ports(TLS_INSPECTOR, sorted(number for number, is_tls in tls.items() if not is_tls)))
    return found


# -- the listener ------------------------------------------------------------------------------------------------------------


@derived
def _served(db: Mesh, by: ServingKey) -> tuple[ServiceRef, ...]:
    return served_services(db, by.waypoint)


_chains_of: Gather[ServiceRef, [ServingKey], ServiceChains] = Gather("chains at a waypoint", _served, service_chains)


class _Parts(NamedTuple):
    """Holds the listener without chains, and these without tracing, by how they are traced."""

    head: bytes
    chains: tuple[tuple[ListeningFacet, tuple[ChainParts, ...]], ...]


@derived
def _parts(db: Mesh, by: ServingKey) -> _Parts:
    services = list(_chains_of(db, by).values())
    workloads, settings = addresses_behind(db, by.waypoint), db.settings
    frame = ListenerHead(
        names.MAIN_INTERNAL,
        (),
        0,
        inbound=True,
        filters=(ORIGINAL_DST, *build_waypoint_inspectors(services, bool(workloads))),
        access_logs=build_listener_access_logs(access_logs(db, by.listening)),
        internal=True,
    )
    head = build_listener_head(frame)
    matcher = build_matcher(services, workloads, uses_double_hbone(settings.ambient), settings.listeners.http10)
    head.filter_chain_matcher.CopyFrom(matcher)
    chains = (*((served.listening, served.chains) for served in services), (by.listening, direct_chains(db, by)))
    return _Parts(head.SerializeToString(deterministic=True), chains)


@derived
def main_internal_listeners(db: Mesh, facet: WaypointFacet) -> Mapping[str, Resource]:
    """Returns the listener. A service may have a Telemetry of its own, so that its spans may differ."""
    parts = _parts(db, serving_key(facet))
    spans = ((tracing_part(db, listening, facet.tags, facet.scope), chains) for listening, chains in parts.chains)
    chains = tuple(traced(chain, tracing) for tracing, chains in spans for chain in chains)
    return {names.MAIN_INTERNAL: assemble(ListenerParts(names.MAIN_INTERNAL, parts.head, chains), b"")}
