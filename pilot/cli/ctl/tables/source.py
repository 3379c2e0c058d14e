"""Which object of a user a part of a resource came from."""

from __future__ import annotations

from typing import Any


def config_object(part: dict[str, Any], kind: str) -> str:
    """Returns `name.namespace` of the object of that kind (destination-rule, virtual-service) that its metadata names, or ""."""
    path = part.get("metadata", {}).get("filterMetadata", {}).get("istio", {}).get("config", "")
    match path.split("/"):
        case [*_, "namespaces", namespace, found, name] if found == kind:
            return f"{name}.{namespace}"
    return ""
