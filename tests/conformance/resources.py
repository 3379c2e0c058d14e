"""Resources as plain data that can be compared: proto JSON in which nothing depends on an order without meaning."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

from google.protobuf import any_pb2, json_format

MESSAGE_PACKAGES = ("protos", "envoy.config", "envoy.extensions", "envoy.type", "envoy.data", "xds", "udpa")
UNORDERED = {
    "virtualHosts",
    "domains",
    "lbEndpoints",
    "endpoints",
    "matchSubjectAltNames",
    "matchTypedSubjectAltNames",
    "addressPrefixRanges",
    "ips",
}
"""Repeated fields whose order has no meaning to Envoy."""
ORDERED = {"routes", "filters", "httpFilters", "listenerFilters"}
"""Repeated fields of items with names whose order has a meaning."""
VOLATILE = {"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"}
"""Fields with a counter of the API server."""


def register_messages() -> None:
    """Import the generated modules of all messages, so that they can be decoded where they are packed as Any."""
    for name in MESSAGE_PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if module.name.endswith("_pb2"):
                importlib.import_module(module.name)


def to_plain(packed: any_pb2.Any) -> Any:
    """Return a packed resource as proto JSON in a canonical order."""
    return in_order(json_format.MessageToDict(packed))


def in_order(value: Any) -> Any:
    """Return plain data with repeated fields sorted where their order has no meaning."""
    if isinstance(value, list):
        return [in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: "-" if name in VOLATILE else in_order(field) for name, field in value.items()}
    for name in UNORDERED & fields.keys():
        if isinstance(rows := fields[name], list):
            rows.sort(key=_sort_key)
    if isinstance(chains := fields.get("filterChains"), list):  # Envoy uses the most specific match in any order
        chains.sort(key=lambda chain: (_sort_key(chain.get("filterChainMatch")), _sort_key(chain)))
    return fields


def _sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def leaves_of(value: Any, path: str = "") -> dict[str, Any]:
    """Return every leaf by its path. List items with a name are addressed by it, others by their position.

    The order of the fields in ORDERED is a leaf of its own.
    """
    if isinstance(value, dict) and value:
        leaves: dict[str, Any] = {}
        for name, field in value.items():
            leaves |= leaves_of(field, f"{path}.{name}" if path else name)
        return leaves
    if isinstance(value, list) and value:
        leaves, prefixes = {}, set[str]()
        for position, item in enumerate(value):
            label = item.get("name", position) if isinstance(item, dict) else position
            prefix = f"{path}[{label}]"
            if prefix in prefixes:
                prefix = f"{path}[{label}#{position}]"
            prefixes.add(prefix)
            leaves |= leaves_of(item, prefix)
        if path.rpartition(".")[2] in ORDERED:
            leaves[f"{path}#order"] = [item.get("name", "") for item in value]
        return leaves
    return {path: value}
