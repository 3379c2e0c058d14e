"""Builds the filters of users' extensions of connections."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.rbac.v3 import rbac_pb2 as rules_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.wasm.v3 import wasm_pb2

from pilot.envoy.extension_config import wait_for
from pilot.envoy.network_filter.rbac import STAT_PREFIX
from pilot.envoy.typed import pack

_MODULE, _STAND_IN = wasm_pb2.Wasm.DESCRIPTOR.full_name, rbac_pb2.RBAC.DESCRIPTOR.full_name


def build_network_module(name: str) -> listener_components_pb2.Filter:
    """Returns the filter of a module, whose configuration comes by itself."""
    return listener_components_pb2.Filter(name=name, config_discovery=wait_for(_MODULE, _STAND_IN))


def build_network_denial(name: str) -> listener_components_pb2.Filter:
    """Returns the filter that lets nothing through."""
    config = rbac_pb2.RBAC(rules=rules_pb2.RBAC(), stat_prefix=STAT_PREFIX)
    return listener_components_pb2.Filter(name=name, typed_config=pack(config))
