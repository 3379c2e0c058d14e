"""Derives the filters of users' extensions for one side of a proxy, port by port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.extensions.traffic_extension import ExecutionPhase
from pilot.derive import derived
from pilot.envoy.filter_phase import Phase
from pilot.envoy.http_filter.extension import build_http_denial, build_http_module, build_script
from pilot.envoy.names import extension_config
from pilot.envoy.network_filter.extension import build_network_denial, build_network_module
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.security.policies import TRAFFIC_EXTENSION
from pilot.mesh.tables.database import Mesh
from pilot.mesh.telemetry.extensions import ListedExtension, extensions_of_side, named_ports

OTHER_PORTS = 0
_PHASES: dict[ExecutionPhase, Phase] = {
    "AUTHN": Phase.EXTENSION_AUTHN,
    "AUTHZ": Phase.EXTENSION_AUTHZ,
    "STATS": Phase.EXTENSION_STATS,
    "UNSPECIFIED": Phase.EXTENSION,
}


def told_apart(db: Mesh, listening: ListeningFacet, port: int) -> int:
    """Returns the port where extensions name it, else `OTHER_PORTS`: chains of all those are alike. No node of its own."""
    return port if listening.policies.of(TRAFFIC_EXTENSION) and port in _named_ports(db, listening) else OTHER_PORTS


@derived
def _named_ports(db: Mesh, listening: ListeningFacet) -> frozenset[int]:
    return named_ports(_extensions(db, listening))


def _extensions(db: Mesh, listening: ListeningFacet) -> tuple[ListedExtension, ...]:
    keys = listening.policies.of(TRAFFIC_EXTENSION)
    return extensions_of_side(db, keys, listening.side in ("inbound", "waypoint")) if keys else ()


def http_extensions(db: Mesh, listening: ListeningFacet, port: int) -> Iterator[tuple[Phase, hcm_pb2.HttpFilter]]:
    """Yields the filters of requests at a port. What a proxy's build lacks takes nothing, or is left out where it may fail."""
    features = listening.features
    for e in _extensions(db, listening):
        if e.form == "network module" or not e.is_for(port):
            continue
        name = extension_config(e.key.namespace, e.key.name)
        if e.form == "script" and features.lua:
            yield _PHASES[e.phase], build_script(name, e.script)
        elif e.form == "HTTP module" and features.wasm:
            yield _PHASES[e.phase], build_http_module(name)
        elif not e.fails_open:
            yield _PHASES[e.phase], build_http_denial(name)


def network_extensions(
    db: Mesh, listening: ListeningFacet
) -> Mapping[int, tuple[tuple[Phase, listener_components_pb2.Filter], ...]]:
    """Returns the filters of connections by port; those of `OTHER_PORTS` are for all ports that are not there. No node of its own."""
    found = [e for e in _extensions(db, listening) if e.form == "network module"]
    ports = (OTHER_PORTS, *sorted(named_ports(found))) if found else ()
    return {port: tuple(_network_filters(listening, found, port)) for port in ports}


def _network_filters(
    listening: ListeningFacet, extensions: list[ListedExtension], port: int
) -> Iterator[tuple[Phase, listener_components_pb2.Filter]]:
    for e in extensions:
        if e.is_for(port):
            name = extension_config(e.key.namespace, e.key.name)
            if listening.features.network_wasm:
                yield _PHASES[e.phase], build_network_module(name)
            elif not e.fails_open:
                yield _PHASES[e.phase], build_network_denial(name)
