"""The user's object that a resource was built from."""

from __future__ import annotations

from typing import Any


def config_object(part: dict[str, Any], kind: str) -> str:
    """Return the `name.namespace` of the object that the metadata names, or "" if it names no object of this kind.

    The kind is, for example, destination-rule or virtual-service.
    """
    path = part.get("metadata", {}).get("filterMetadata", {}).get("istio", {}).get("config", "")
    match path.split("/"):
        case [*_, "namespaces", namespace, object_kind, name] if object_kind == kind:
            return f"{name}.{namespace}"
    return ""
