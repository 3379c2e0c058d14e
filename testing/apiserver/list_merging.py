"""Merge types of lists: by the keys of their items, as sets, or as atomic values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "webhooks": ("name",),
    "secrets": ("name",),
    "taints": ("key",),
    "podIPs": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "matchConditions": ("name",),
}
_SETS = frozenset({"finalizers"})
Key = tuple[tuple[str, Any], ...]


def item_keys(field: str, items: Sequence[Any], built_in: bool) -> tuple[str, ...]:
    """Return the names of the key fields of a list's items, or () if the list is atomic."""
    if not items or not all(isinstance(item, dict) for item in items) or not (built_in or field == "conditions"):
        return ()
    if field == "ports":
        if all("containerPort" in item for item in items):
            return ("containerPort", "protocol")
        return ("port", "protocol") if all("port" in item for item in items) else ()
    return _KEYS.get(field, ())


def is_set(field: str) -> bool:
    """Return whether a list is a set of scalar items."""
    return field in _SETS


def key_of(item: Mapping[str, Any], names: Sequence[str]) -> Key:
    """Return the key of an item. The protocol of a port defaults to TCP."""
    return tuple((name, item.get(name, "TCP" if name == "protocol" else None)) for name in names)
