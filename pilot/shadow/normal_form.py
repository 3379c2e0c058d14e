"""Resources as plain data in a normal form: whatever has no meaning to a proxy is sorted, replaced or left out.

Both sides are in canonical proto JSON, which omits default values.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from google.protobuf import any_pb2, json_format

from pilot.envoy.newer_fields import add_newer_fields
from pilot.envoy.resource import Resource
from pilot.lib.protobuf.types import find_type

_UNORDERED = frozenset(
    (
        *("virtualHosts", "domains", "lbEndpoints", "endpoints", "matchSubjectAltNames", "matchTypedSubjectAltNames"),
        *("addressPrefixRanges", "ips", "verifySubjectAltName", "addresses"),
    )
)
"""Repeated fields whose order has no meaning to Envoy."""
_SETS = frozenset({"domains", "matchSubjectAltNames", "matchTypedSubjectAltNames", "ips"})
"""Unordered fields with small items."""
_VOLATILE = frozenset({"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", "ISTIO_META_WASM_IMAGE_PULL_SECRET"})
"""Fields with counters of the API server, or with secrets that debug pages redact."""
REDACTED = "-"
_UNKNOWN = re.compile(r"type_url: \"?[\w.]*/([\w.]+)")
_EXTENSION_CONFIG = ".TypedExtensionConfig"
_MOST_TYPES = 100


def normal_form(value: Any) -> Any:
    """Return the normal form of plain data."""
    if isinstance(value, list):
        return [normal_form(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: REDACTED if name in _VOLATILE else normal_form(field) for name, field in value.items()}
    for name in _UNORDERED & fields.keys():
        if isinstance(rows := fields[name], list):
            rows.sort(key=_sort_key)
    if isinstance(chains := fields.get("filterChains"), list):  # Envoy uses the most specific match in any order
        chains.sort(key=lambda chain: (_sort_key(chain.get("filterChainMatch")), _sort_key(chain)))
    if isinstance(groups := fields.get("groups"), list):  # of a ztunnel's policy, whose parts are sets
        for rules in [group.get("rules", []) for group in groups if isinstance(group, dict)]:
            for rule in rules:
                rule.get("matches", []).sort(key=_sort_key)
            rules.sort(key=_sort_key)
        groups.sort(key=_sort_key)
    for name in ("privateKey", "password", "sessionTicketKeys", "genericSecret"):
        if name in fields:
            fields[name] = REDACTED
    return fields


def _sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def reference_form(data: bytes) -> Any:
    """Return the normal form of a resource in JSON."""
    return normal_form(_unwrapped(msgspec.json.decode(data)))


def derived_form(resource: Resource) -> Any:
    """Return the normal form of a resource of this control plane."""
    packed = any_pb2.Any.FromString(resource.any)
    return normal_form(_unwrapped(as_plain(packed)))


def as_plain(packed: any_pb2.Any) -> Any:
    """Return a message as proto JSON. The modules of the types in it are imported when they are first needed."""
    for _ in range(_MOST_TYPES):
        try:
            plain = json_format.MessageToDict(packed)
            add_newer_fields(packed, plain)
            return plain
        except TypeError as error:
            match = _UNKNOWN.search(str(error))
            if match is None or find_type(match[1]) is None:
                raise
    raise TypeError(f"{packed.type_url} contains too many unknown types")


def _unwrapped(plain: Any) -> Any:
    """Return the Wasm filter in an extension configuration, as on istiod's pages, and any other resource unchanged."""
    if isinstance(plain, dict) and str(plain.get("@type", "")).endswith(_EXTENSION_CONFIG):
        inner = plain.get("typedConfig", {})
        return inner if str(inner.get("@type", "")).endswith(".Wasm") else plain
    return plain


def leaves_of(value: Any, path: str = "") -> dict[str, Any]:
    """Return every leaf by its path.

    List items with a name are addressed by it, the items of sets by their content, and others by their position.
    """
    if isinstance(value, dict) and value:
        leaves: dict[str, Any] = {}
        for name, field in value.items():
            inner = f"{path}.{name}" if path else name
            if name in _SETS and isinstance(field, list):
                leaves |= {f"{inner}[{_sort_key(item)}]": item for item in field}
            else:
                leaves |= leaves_of(field, inner)
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
        return leaves
    return {path: value}
