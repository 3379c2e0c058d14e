"""Validation of EnvoyFilters: the target, match, operation and value of each patch.

A patch with an invalid value is ignored; the other patches of the object are applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.config.networking.envoy_filter import (
    EnvoyConfigObjectMatch,
    EnvoyConfigObjectPatch,
    EnvoyFilter,
    FilterMatch,
    ListenerMatch,
)
from pilot.config.object import Object
from pilot.config.patch_value import MERGES, read_patch_value
from pilot.config.problem import Problems, below, error, warning
from pilot.config.validation import rules
from pilot.config.validation.policy import check_targets
from pilot.lib.protobuf.fault import shown
from pilot.lib.protobuf.reader import MAX_FAULTS
from pilot.lib.regex import is_searchable

HTTP_MANAGER = "envoy.filters.network.http_connection_manager"
LONGEST_VERSION = 256
"""The maximum length of version expressions, in characters. It takes less than 20 ms to compile one.

A longer expression is not compiled and matches no proxy.
"""
MAX_VALUES = 20_000
"""Maximum number of JSON values in all patches of an EnvoyFilter. Decoding this many takes less than 500 ms.

An ordinary EnvoyFilter has fewer than 1000 values. The length of a string does not matter.
"""
_INSERTS = frozenset(("INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST"))
_FILTERS = frozenset(("NETWORK_FILTER", "HTTP_FILTER", "LISTENER_FILTER"))
_LISTENERS = _FILTERS | {"LISTENER", "FILTER_CHAIN"}
_ROUTES = frozenset(("ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE"))
_OPERATIONS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("LISTENER", "FILTER_CHAIN", "CLUSTER"), MERGES | {"ADD", "REMOVE"} | _INSERTS),
    **dict.fromkeys(_FILTERS, MERGES | {"ADD", "REMOVE", "REPLACE"} | _INSERTS),
    "ROUTE_CONFIGURATION": MERGES,
    "VIRTUAL_HOST": MERGES | {"ADD", "REMOVE", "REPLACE"} | _INSERTS,
    "HTTP_ROUTE": MERGES | {"ADD", "REMOVE"} | _INSERTS,
    "EXTENSION_CONFIG": _INSERTS | {"ADD"},
    "BOOTSTRAP": MERGES,
}
"""The operations that have an effect, keyed by `applyTo`.

If the order of the items is irrelevant, the INSERT operations have the same effect as ADD.
"""
_WITHOUT_EFFECT = {
    "ADD": "add-without-effect",
    "REMOVE": "remove-without-effect",
    "REPLACE": "replace-without-effect",
}
"""The codes of problems with operations that have no effect."""
_OLD_NAMES = {
    "envoy.http_connection_manager": HTTP_MANAGER,
    "envoy.tcp_proxy": "envoy.filters.network.tcp_proxy",
    "envoy.router": "envoy.filters.http.router",
    "envoy.cors": "envoy.filters.http.cors",
    "envoy.fault": "envoy.filters.http.fault",
    "envoy.lua": "envoy.filters.http.lua",
    "envoy.ext_authz": "envoy.filters.http.ext_authz",
}


def validate_envoy_filter(o: Object[EnvoyFilter]) -> Problems:
    """Yield the problems of an EnvoyFilter."""
    yield from below("spec", _check(o.spec))


def _check(spec: EnvoyFilter) -> Problems:
    if spec.workload_selector is not None and spec.target_refs:
        yield error("exclusive-fields", "", "only one of workloadSelector and targetRefs may be set")
    if spec.workload_selector is not None:
        yield from rules.check_selector("workloadSelector", spec.workload_selector.labels, "labels")
    yield from check_targets(spec.target_refs)
    if _count_values(spec) > MAX_VALUES:
        yield error("too-large", "configPatches", f"more than {MAX_VALUES} values in all patches; split the object")
    else:
        yield from _check_patches(spec.config_patches)


def _check_patches(patches: Sequence[EnvoyConfigObjectPatch]) -> Problems:
    """Yield the problems of patches. After `MAX_FAULTS` problems of values, values are not read.

    Only the first value with problems gets a suggestion for an unknown type.
    """
    faults = 0
    for index, item in enumerate(patches):
        yield from below(f"configPatches[{index}]", _check_patch(item))
        if faults < MAX_FAULTS:
            problems = list(_check_value(item, suggests=not faults))
            yield from below(f"configPatches[{index}].patch.value", problems)
            faults += len(problems)


def _count_values(spec: EnvoyFilter) -> int:
    """Return the number of JSON values in all patches, or a number above the maximum."""
    todo: list[Any] = [item.patch.value for item in spec.config_patches if item.patch is not None]
    count = len(spec.config_patches)
    while todo and count <= MAX_VALUES:
        value = todo.pop()
        count += 1
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
    return count


def _check_patch(item: EnvoyConfigObjectPatch) -> Problems:
    if item.apply_to == "INVALID":
        yield error("missing-field", "applyTo", "a value is required")
        return
    if item.patch is None or item.patch.operation == "INVALID":
        yield error(
            "missing-field", "patch.operation" if item.patch is not None else "patch", "an operation is required"
        )
        return
    if item.match is not None:
        yield from below("match", _check_match(item.apply_to, item.match))
    operation, value = item.patch.operation, item.patch.value
    if operation not in _OPERATIONS[item.apply_to]:
        code = _WITHOUT_EFFECT.get(operation, "no-effect")
        yield warning(code, "patch.operation", f"{operation} has no effect on {item.apply_to}")
        return
    if operation != "REMOVE":
        if value is None:
            yield error("missing-field", "patch.value", f"{operation} requires a value")
            return
    elif value is not None:
        yield warning("no-effect", "patch.value", "REMOVE does not take a value")
    if item.patch.filter_class != "UNSPECIFIED" and not (item.apply_to == "HTTP_FILTER" and operation == "ADD"):
        yield warning("no-effect", "patch.filterClass", "has an effect only if an HTTP_FILTER is added")
    if (
        operation in ("REMOVE", "REPLACE")
        and item.apply_to in _FILTERS
        and not _names_filter(item.apply_to, item.match)
    ):
        yield warning("no-effect", "match", f"{operation} requires the name of a filter")
    if item.apply_to == "BOOTSTRAP":
        yield warning("no-effect", "applyTo", "has no effect: a proxy has its bootstrap before it connects")
    if item.match is not None and (item.match.context == "WAYPOINT" or item.match.waypoint is not None):
        yield warning(
            "no-effect",
            "match",
            "the context WAYPOINT has no effect; to patch waypoints, use SIDECAR_INBOUND with targetRefs",
        )


def _check_value(item: EnvoyConfigObjectPatch, suggests: bool) -> Problems:
    """Yield the problems of a patch's value. Any problem causes the patch to be ignored."""
    patch = item.patch
    if patch is None or patch.value is None or patch.operation not in _OPERATIONS.get(item.apply_to, ()):
        return
    if patch.operation == "REMOVE":
        return
    for fault in read_patch_value(item.apply_to, patch.operation, patch.value, suggests)[1]:
        is_old = fault.code == "unknown-field" and fault.place[-1] == "config"
        text = f"{fault.text}{'; use typed_config with @type' if is_old else ''}; the patch is ignored"
        yield warning(fault.code, shown(fault.place), text)


# Matches


def _check_match(apply_to: str, match: EnvoyConfigObjectMatch) -> Problems:
    if match.proxy is not None and match.proxy.proxy_version:
        if len(match.proxy.proxy_version) > LONGEST_VERSION:
            yield warning(
                "too-long", "proxy.proxyVersion", f"longer than {LONGEST_VERSION} characters, so it matches no proxy"
            )
        else:
            findings = tuple(rules.check_regex("proxy.proxyVersion", match.proxy.proxy_version))
            yield from findings
            if not findings and not is_searchable(match.proxy.proxy_version):
                yield warning("too-complex", "proxy.proxyVersion", "too complex, so it matches no proxy; simplify it")
    required = "listener" if apply_to in _LISTENERS else "routeConfiguration" if apply_to in _ROUTES else "cluster"
    parts = {"listener": match.listener, "routeConfiguration": match.route_configuration, "cluster": match.cluster}
    if apply_to not in ("EXTENSION_CONFIG", "BOOTSTRAP"):
        for name in (name for name, part in parts.items() if part is not None and name != required):
            yield error("bad-match", name, f"{apply_to} must be matched by {required}")
    else:
        for name in (name for name, part in parts.items() if part is not None):
            yield warning("no-effect", name, f"has no effect on {apply_to}")
    if match.listener is not None and apply_to in _LISTENERS:
        yield from below("listener", _check_listener(apply_to, match.listener))


def _check_listener(apply_to: str, match: ListenerMatch) -> Problems:
    if match.port_name:
        yield warning("no-effect", "portName", "has no effect: listeners have no port names")
    if match.filter_chain is not None and match.filter_chain.transport_socket:
        yield warning("no-effect", "filterChain.transportSocket", "has no effect")
    if match.listener_filter and apply_to != "LISTENER_FILTER":
        yield warning("no-effect", "listenerFilter", f"has no effect on {apply_to}")
    if match.filter_chain is not None and match.filter_chain.filter is not None:
        yield from below("filterChain.filter", _check_filter(apply_to, match.filter_chain.filter))


def _check_filter(apply_to: str, match: FilterMatch) -> Problems:
    if apply_to not in ("NETWORK_FILTER", "HTTP_FILTER"):
        yield warning("no-effect", "", f"has no effect on {apply_to}")
    if not match.name:
        yield error("missing-field", "name", "a filter name is required")
        return
    yield from _check_name("name", match.name)
    if match.sub_filter is None:
        return
    if apply_to != "HTTP_FILTER":
        yield error("bad-match", "subFilter", "only HTTP_FILTER patches may match a subFilter")
    elif match.name not in (HTTP_MANAGER, "envoy.http_connection_manager"):
        yield error("bad-match", "name", f"must be {HTTP_MANAGER}, which contains the HTTP filters")
    elif not match.sub_filter.name:
        yield error("missing-field", "subFilter.name", "a filter name is required")
    else:
        yield from _check_name("subFilter.name", match.sub_filter.name)


def _check_name(path: str, name: str) -> Problems:
    if name in _OLD_NAMES:
        yield warning("old-name", path, f"matches nothing; the filter is now named {_OLD_NAMES[name]}")


def _names_filter(apply_to: str, match: EnvoyConfigObjectMatch | None) -> bool:
    listener = match.listener if match is not None else None
    if listener is None or apply_to == "LISTENER_FILTER":
        return listener is not None and bool(listener.listener_filter)
    filter_match = listener.filter_chain.filter if listener.filter_chain is not None else None
    return filter_match is not None and (apply_to == "NETWORK_FILTER" or filter_match.sub_filter is not None)
