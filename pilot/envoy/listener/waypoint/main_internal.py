"""The internal listener of a waypoint for the payload of tunnels. A connection's destination selects the filter chain.

The destination is an address and port, either of a service or of a workload behind the waypoint. Addresses may not be
unique across networks, so a tunnel from another network names the service, and the name takes precedence.
https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/advanced/matching/matching_api
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
from pilot.envoy.listener.manager_template import tracing_fields
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
from pilot.mesh.model.ambient_features import uses_double_hbone
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.waypoint import ServingKey, WaypointFacet, served_services, serving_key
from pilot.mesh.tables.database import Mesh

_Matcher = matcher_pb2.Matcher
_OnMatch = matcher_pb2.Matcher.OnMatch
_UNUSED_PORT = "0"


def _input(name: str, message: object) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(message))


_PORT = _input("port", network_inputs_pb2.DestinationPortInput())
_ADDRESS = _input("ip", network_inputs_pb2.DestinationIPInput())
_PROTOCOL = _input("application-protocol", network_inputs_pb2.ApplicationProtocolInput())
_NAME = _input("authority-filter-state", network_inputs_pb2.FilterStateInput(key=AUTHORITY))


# -- matchers ----------------------------------------------------------------------------------------------------------


def chain_action(name: str) -> matcher_pb2.Matcher.OnMatch:
    """Return the action that selects the chain with this name."""
    return _OnMatch(
        action=extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(wrappers_pb2.StringValue(value=name)))
    )


def map_matcher(
    input_config: extension_pb2.TypedExtensionConfig, on_matches: Mapping[str, matcher_pb2.Matcher.OnMatch]
) -> matcher_pb2.Matcher:
    """Return a matcher that looks up the exact value of an input in a map."""
    matcher = _Matcher()
    matcher.matcher_tree.input.CopyFrom(input_config)
    for value, on_match in on_matches.items():
        matcher.matcher_tree.exact_match_map.map[value].CopyFrom(on_match)
    return matcher


def protocol_matcher(chains: Mapping[str, str], http10: bool) -> matcher_pb2.Matcher.OnMatch:
    """Return the match that selects a chain by protocol. If there is only one chain, no inspection is needed."""
    if len(chains) == 1:
        return chain_action(next(iter(chains.values())))
    alpns = ("h2c", "http/1.1", *(("http/1.0",) if http10 else ()))
    matcher = map_matcher(_PROTOCOL, {f"'{alpn}'": chain_action(chains[HTTP]) for alpn in alpns})
    matcher.on_no_match.CopyFrom(chain_action(chains[TCP]))
    return _OnMatch(matcher=matcher)


def _range(addresses: Iterable[str], on_match: matcher_pb2.Matcher.OnMatch) -> ip_pb2.IPMatcher.IPRangeMatcher:
    cidrs = [cidr for address in addresses if (cidr := build_cidr(address)) is not None]
    ranges = [cidr_pb2.CidrRange(address_prefix=cidr.address_prefix, prefix_len=cidr.prefix_len) for cidr in cidrs]
    return ip_pb2.IPMatcher.IPRangeMatcher(ranges=ranges, on_match=on_match)


class ServiceMatch(NamedTuple):
    """The hostname and addresses of a service, and the match for each of its ports."""

    hostname: str
    addresses: tuple[str, ...]
    ports: Mapping[int, matcher_pb2.Matcher.OnMatch]


def build_matcher(
    services: Sequence[ServiceChains], workloads: Sequence[str], by_name: bool, http10: bool
) -> matcher_pb2.Matcher:
    """Return the matcher that selects the chain of a connection.

    `workloads` are the addresses of the workloads behind the waypoint. If `by_name` is set, service names are also
    matched, and they take precedence.
    """
    matches = (
        ServiceMatch(
            service.hostname,
            service.addresses,
            {port.number: protocol_matcher(chains, http10) for port, chains in chain_names(service)},
        )
        for service in services
    )
    direct = [_range(workloads, protocol_matcher({TCP: DIRECT_TCP, HTTP: DIRECT_HTTP}, http10))] if workloads else []
    return match_services(matches, by_name, chain_action(DIRECT_TCP), direct)


def match_services(
    services: Iterable[ServiceMatch],
    by_name: bool,
    fallback: matcher_pb2.Matcher.OnMatch,
    others: Iterable[ip_pb2.IPMatcher.IPRangeMatcher] = (),
) -> matcher_pb2.Matcher:
    """Return a matcher that first compares the name of a service, then its address and port, and finally `others`.

    If there is nothing to match, `fallback` is used to build a valid matcher. No connection can reach it.
    """
    addresses = ip_pb2.IPMatcher()
    by_host: dict[str, matcher_pb2.Matcher.OnMatch] = {}
    for match in services:
        if not match.addresses or not match.ports:
            continue
        by_port = _OnMatch(matcher=map_matcher(_PORT, {str(number): action for number, action in match.ports.items()}))
        addresses.range_matchers.append(_range(match.addresses, by_port))
        by_host.update({joined(match.hostname, number): action for number, action in match.ports.items()})
    addresses.range_matchers.extend(others)
    if not addresses.range_matchers:
        return map_matcher(_PORT, {_UNUSED_PORT: fallback})
    matcher = _Matcher()
    matcher.matcher_tree.input.CopyFrom(_ADDRESS)
    matcher.matcher_tree.custom_match.CopyFrom(_input("ip", addresses))
    if not by_host or not by_name:
        return matcher
    name_matcher = map_matcher(_NAME, by_host)
    name_matcher.on_no_match.matcher.CopyFrom(matcher)
    return name_matcher


# -- inspection --------------------------------------------------------------------------------------------------------


def build_waypoint_inspectors(
    services: Iterable[ServiceChains], workloads: bool
) -> list[listener_components_pb2.ListenerFilter]:
    """Return the inspectors of the listener.

    HTTP is only inspected on ports with an unknown protocol, because inspection stalls if the server sends first.
    Workloads that are addressed directly may use any port.
    """
    protocols: dict[int, set[str]] = {}
    tls: dict[int, bool] = {}
    for port in (p for served in services for p in served.ports):
        protocols.setdefault(port.number, set()).update(port.protocols)
        tls[port.number] = tls.get(port.number, False) or port.tls
    known_ports = [] if workloads else sorted(number for number, names in protocols.items() if len(names) == 1)
    filters = [without_ports(HTTP_INSPECTOR, known_ports)]
    if any(tls.values()):
        filters.append(without_ports(TLS_INSPECTOR, sorted(number for number, is_tls in tls.items() if not is_tls)))
    return filters


# -- the listener ------------------------------------------------------------------------------------------------------


@derived
def _served(db: Mesh, key: ServingKey) -> tuple[ServiceRef, ...]:
    return served_services(db, key.waypoint)


_chains_of: Gather[ServiceRef, [ServingKey], ServiceChains] = Gather("chains at a waypoint", _served, service_chains)


class _Parts(NamedTuple):
    """The listener without its chains, and the chains without tracing. The chains are grouped by their tracing."""

    head: bytes
    chains: tuple[tuple[ListeningFacet, tuple[ChainParts, ...]], ...]


@derived
def _parts(db: Mesh, key: ServingKey) -> _Parts:
    services = list(_chains_of(db, key).values())
    workloads, settings = addresses_behind(db, key.waypoint), db.settings
    head = ListenerHead(
        names.MAIN_INTERNAL,
        (),
        0,
        inbound=True,
        filters=(ORIGINAL_DST, *build_waypoint_inspectors(services, bool(workloads))),
        access_logs=build_listener_access_logs(access_logs(db, key.listening)),
        internal=True,
    )
    listener = build_listener_head(head)
    matcher = build_matcher(services, workloads, uses_double_hbone(settings.ambient), settings.listeners.http10)
    listener.filter_chain_matcher.CopyFrom(matcher)
    chains = (*((served.listening, served.chains) for served in services), (key.listening, direct_chains(db, key)))
    return _Parts(listener.SerializeToString(deterministic=True), chains)


@derived
def main_internal_listeners(db: Mesh, facet: WaypointFacet) -> Mapping[str, Resource]:
    """Return the internal listener for the payload of tunnels.

    Its chains may differ in tracing, because Telemetries may apply to single services.
    """
    parts = _parts(db, serving_key(facet))
    tracings = ((tracing_fields(db, listening, facet.tags, facet.scope), chains) for listening, chains in parts.chains)
    chains = tuple(traced(chain, tracing) for tracing, chains in tracings for chain in chains)
    return {names.MAIN_INTERNAL: assemble(ListenerParts(names.MAIN_INTERNAL, parts.head, chains), b"")}
