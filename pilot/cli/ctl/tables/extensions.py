"""Extension configurations: filters that are discovered on their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HEAD = ("NAME", "TYPE", "FAILS")


def rows(resources: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns a row for each extension configuration: its name, the type of its filter, and for Wasm what happens when it fails."""
    return sorted((resource.get("name", ""), _type(resource), _fails(resource)) for resource in resources)


def _type(resource: dict[str, Any]) -> str:
    config = resource.get("typedConfig", {})
    url = config.get("typeUrl") or config.get("@type", "")
    return str(url).rpartition("/")[2] or "-"


def _fails(resource: dict[str, Any]) -> str:
    config = resource.get("typedConfig", {}).get("config", {})
    policy = config.get("failurePolicy") or ("FAIL_OPEN" if config.get("failOpen") else "")
    return str(policy) or "-"
