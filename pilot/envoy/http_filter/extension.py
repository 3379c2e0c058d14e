"""Builds the filters of users' extensions of requests: Wasm modules, whose configuration comes by itself, and scripts of Lua."""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.config.rbac.v3 import rbac_pb2 as rules_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.extension_config import wait_for
from pilot.envoy.typed import pack

_MODULE, _STAND_IN = wasm_pb2.Wasm.DESCRIPTOR.full_name, rbac_pb2.RBAC.DESCRIPTOR.full_name


def build_http_module(name: str) -> hcm_pb2.HttpFilter:
    """Returns the filter of a module. Where the companion cannot fetch it, it puts a filter in its place that lets all through, or nothing."""
    return hcm_pb2.HttpFilter(name=name, config_discovery=wait_for(_MODULE, _STAND_IN))


def build_script(name: str, script: str) -> hcm_pb2.HttpFilter:
    """Returns the filter of a script."""
    config = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=script))
    return hcm_pb2.HttpFilter(name=name, typed_config=pack(config))


def build_http_denial(name: str) -> hcm_pb2.HttpFilter:
    """Returns the filter that lets nothing through."""
    return hcm_pb2.HttpFilter(name=name, typed_config=pack(rbac_pb2.RBAC(rules=rules_pb2.RBAC())))
