"""Patches the network filters of a chain, and the HTTP filters of its connection managers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pilot.config.validation.traffic.envoy_filter import HTTP_MANAGER
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_list import change_list
from pilot.envoy.envoy_filter.patch_match import matches_chain
from pilot.envoy.envoy_filter.patch_merge import merge_packed
from pilot.lib.protobuf.constraints import unpack
from pilot.lib.protobuf.types import name_in

_NETWORK = "envoy.extensions.filters.network"
_ENDS = frozenset(
    (
        "envoy.extensions.filters.http.router.v3.Router",
        f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager",
        f"{_NETWORK}.tcp_proxy.v3.TcpProxy",
        f"{_NETWORK}.redis_proxy.v3.RedisProxy",
        f"{_NETWORK}.thrift_proxy.v3.ThriftProxy",
        f"{_NETWORK}.dubbo_proxy.v3.DubboProxy",
        f"{_NETWORK}.generic_proxy.v3.GenericProxy",
        f"{_NETWORK}.echo.v3.Echo",
        f"{_NETWORK}.direct_response.v3.Config",
    )
)
"""Filters that end what becomes of a connection or request: Envoy refuses a list in which one is not the last."""
_AUTHN = frozenset(("envoy.filters.http.jwt_authn", "istio_authn"))
_AUTHZ = frozenset(("envoy.filters.http.rbac", "envoy.filters.http.ext_authz"))
_STATS = frozenset(("istio.stats", "envoy.filters.http.grpc_stats"))


def _end(filters: Any) -> int:
    """Returns the position behind which nothing may stand: before the filter that ends the list, where there is one."""
    last = len(filters)
    return last - 1 if last and name_in(filters[-1].typed_config.type_url) in _ENDS else last


# -- network filters -------------------------------------------------------------------------------------------------------


def patch_network_filters(listener: Any, chain: Any, patches: Sequence[ParsedPatch], effects: Effects) -> None:
    """Patches the filters of a chain in place: first which there are, then what they are, then what is in them."""
    own = [patch for patch in patches if matches_chain(patch, listener, chain)]
    network = [patch for patch in own if patch.apply_to == "NETWORK_FILTER"]
    for patch in network:
        if not patch.merges:
            change_list(chain.filters, patch, _chosen(patch), effects, _end(chain.filters))
    for item in chain.filters:
        for patch in network:
            if patch.merges and _is_named(patch, item.name):
                _merge_filter(item, patch, effects)
        http = [patch for patch in own if patch.apply_to == "HTTP_FILTER" and _is_named(patch, item.name)]
        if http and item.name == HTTP_MANAGER:
            _patch_manager(item, http, effects)


def _is_named(patch: ParsedPatch, name: str) -> bool:
    return patch.network_filter is None or patch.network_filter.name == name


def _chosen(patch: ParsedPatch) -> Callable[[Any], bool] | None:
    named = patch.network_filter
    return None if named is None else lambda item: item.name == named.name


def _merge_filter(item: Any, patch: ParsedPatch, effects: Effects) -> None:
    """Merges what a patch says of a filter's config, and gives the filter the patch's name. A config that is not known yet is not merged."""
    if not item.HasField("typed_config"):
        return
    if patch.value.HasField("typed_config") and not merge_packed(
        item.typed_config, patch.value.typed_config, patch, effects
    ):
        return
    item.name = patch.value.name or item.name
    effects.apply(patch)


# -- HTTP filters ----------------------------------------------------------------------------------------------------------


def _patch_manager(item: Any, patches: Sequence[ParsedPatch], effects: Effects) -> None:
    manager = unpack(item.typed_config)
    if manager is None or not hasattr(manager, "http_filters"):
        return
    for patch in patches:
        if not patch.merges:
            name = (
                patch.network_filter.sub_filter.name
                if patch.network_filter is not None and patch.network_filter.sub_filter is not None
                else None
            )
            change_list(manager.http_filters, patch, _called(name), effects, _place(patch, manager.http_filters))
    for found in manager.http_filters:
        for patch in patches:
            sub = patch.network_filter.sub_filter if patch.network_filter is not None else None
            if patch.merges and (sub is None or sub.name == found.name):
                _merge_filter(found, patch, effects)
    item.typed_config.value = manager.SerializeToString(deterministic=True)


def _called(name: str | None) -> Callable[[Any], bool] | None:
    return None if name is None else lambda item: item.name == name


def _place(patch: ParsedPatch, filters: Any) -> int:
    """Returns where a filter is added: by its class behind Istio's filters of that class, or before those that count; else at the end."""
    end = _end(filters)
    if patch.operation != "ADD" or patch.filter_class == "UNSPECIFIED":
        return end
    named = [item.name for item in filters]
    if patch.filter_class == "STATS":
        return min((index for index, name in enumerate(named[:end]) if name in _STATS), default=end)
    before = _AUTHN if patch.filter_class == "AUTHN" else _AUTHN | _AUTHZ
    behind = [index for index, name in enumerate(named[:end]) if name in before]
    if behind:
        return behind[-1] + 1
    return min((index for index, name in enumerate(named[:end]) if name in _AUTHZ), default=end)
