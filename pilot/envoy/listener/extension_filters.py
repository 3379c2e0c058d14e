"""Filters for users' extensions on one side of a proxy: Wasm modules and Lua scripts.

An extension may be limited to some ports. The configuration of a Wasm module arrives separately, by extension config
discovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2 as http_wasm_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac_pb2
from envoy.extensions.filters.network.wasm.v3 import wasm_pb2 as network_wasm_pb2

from pilot.config.extensions.traffic_extension import ExecutionPhase
from pilot.config.kinds.istio import TRAFFIC_EXTENSION
from pilot.derive import derived
from pilot.envoy.extension_config import wait_for
from pilot.envoy.filter_phase import Phase
from pilot.envoy.names import extension_config
from pilot.envoy.network_filter.network_authz import STAT_PREFIX
from pilot.envoy.well_known_types import pack
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.telemetry.extensions import ListedExtension, extensions_of_side, named_ports

OTHER_PORTS = 0
"""The number that represents every port that no extension names."""
_PHASES: dict[ExecutionPhase, Phase] = {
    "AUTHN": Phase.EXTENSION_AUTHN,
    "AUTHZ": Phase.EXTENSION_AUTHZ,
    "STATS": Phase.EXTENSION_STATS,
    "UNSPECIFIED": Phase.EXTENSION,
}
# The agent replaces a module that it cannot fetch with an RBAC filter that allows or denies everything.
_HTTP_TYPES = http_wasm_pb2.Wasm.DESCRIPTOR.full_name, http_rbac_pb2.RBAC.DESCRIPTOR.full_name
_NETWORK_TYPES = network_wasm_pb2.Wasm.DESCRIPTOR.full_name, network_rbac_pb2.RBAC.DESCRIPTOR.full_name


# -- selection ---------------------------------------------------------------------------------------------------------


def extension_port(db: Mesh, listening: ListeningFacet, port: int) -> int:
    """Return `port` if an extension names it, or else `OTHER_PORTS`. Not memoised.

    All other ports can therefore share filter chains.
    """
    return (
        port
        if listening.policies.of(TRAFFIC_EXTENSION.id.name) and port in _named_ports(db, listening)
        else OTHER_PORTS
    )


@derived
def _named_ports(db: Mesh, listening: ListeningFacet) -> frozenset[int]:
    return named_ports(_extensions(db, listening))


def _extensions(db: Mesh, listening: ListeningFacet) -> tuple[ListedExtension, ...]:
    keys = listening.policies.of(TRAFFIC_EXTENSION.id.name)
    return extensions_of_side(db, keys, listening.side in ("inbound", "waypoint")) if keys else ()


def http_extensions(db: Mesh, listening: ListeningFacet, port: int) -> Iterator[tuple[Phase, hcm_pb2.HttpFilter]]:
    """Yield the HTTP filters for a port.

    If the proxy's build cannot run an extension, a filter that denies all requests replaces it. An extension that fails
    open is omitted instead.
    """
    features = listening.features
    for extension in _extensions(db, listening):
        if extension.form == "network module" or not extension.is_for(port):
            continue
        name = extension_config(extension.key.namespace, extension.key.name)
        if extension.form == "script" and features.lua:
            yield _PHASES[extension.phase], build_script(name, extension.script)
        elif extension.form == "HTTP module" and features.wasm:
            yield _PHASES[extension.phase], build_http_module(name)
        elif not extension.fails_open:
            yield _PHASES[extension.phase], build_http_denial(name)


def network_extensions(
    db: Mesh, listening: ListeningFacet
) -> Mapping[int, tuple[tuple[Phase, listener_components_pb2.Filter], ...]]:
    """Return a mapping from port to network filters. Not memoised.

    The filters of `OTHER_PORTS` apply to ports without an entry.
    """
    modules = [extension for extension in _extensions(db, listening) if extension.form == "network module"]
    ports = (OTHER_PORTS, *sorted(named_ports(modules))) if modules else ()
    return {port: tuple(_network_filters(listening, modules, port)) for port in ports}


def _network_filters(
    listening: ListeningFacet, modules: list[ListedExtension], port: int
) -> Iterator[tuple[Phase, listener_components_pb2.Filter]]:
    for module in modules:
        if module.is_for(port):
            name = extension_config(module.key.namespace, module.key.name)
            if listening.features.network_wasm:
                yield _PHASES[module.phase], build_network_module(name)
            elif not module.fails_open:
                yield _PHASES[module.phase], build_network_denial(name)


# -- filters -----------------------------------------------------------------------------------------------------------


def build_http_module(name: str) -> hcm_pb2.HttpFilter:
    """Return the HTTP filter for a Wasm module."""
    return hcm_pb2.HttpFilter(name=name, config_discovery=wait_for(*_HTTP_TYPES))


def build_script(name: str, script: str) -> hcm_pb2.HttpFilter:
    """Return the HTTP filter for a Lua script."""
    config = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=script))
    return hcm_pb2.HttpFilter(name=name, typed_config=pack(config))


def build_http_denial(name: str) -> hcm_pb2.HttpFilter:
    """Return an HTTP filter that denies all requests."""
    return hcm_pb2.HttpFilter(name=name, typed_config=pack(http_rbac_pb2.RBAC(rules=rbac_pb2.RBAC())))


def build_network_module(name: str) -> listener_components_pb2.Filter:
    """Return the network filter for a Wasm module."""
    return listener_components_pb2.Filter(name=name, config_discovery=wait_for(*_NETWORK_TYPES))


def build_network_denial(name: str) -> listener_components_pb2.Filter:
    """Return a network filter that denies all connections."""
    config = network_rbac_pb2.RBAC(rules=rbac_pb2.RBAC(), stat_prefix=STAT_PREFIX)
    return listener_components_pb2.Filter(name=name, typed_config=pack(config))
