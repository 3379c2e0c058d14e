"""Extension configurations: filters that are delivered separately over ECDS."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.filters import Filters

HEAD = ("NAME", "TYPE", "FAILURE POLICY")

FILTERS = ("name",)


def select(resources: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the resource with the name, or all of them."""
    return [resource for resource in resources if filters.name in ("", resource.get("name", ""))]


def rows(resources: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each extension configuration, with its filter type and, for Wasm, its failure policy."""
    return sorted((resource.get("name", ""), _type(resource), _fails(resource)) for resource in resources)


def _type(resource: dict[str, Any]) -> str:
    config = resource.get("typedConfig", {})
    url = config.get("typeUrl") or config.get("@type", "")
    return str(url).rpartition("/")[2] or "-"


def _fails(resource: dict[str, Any]) -> str:
    config = resource.get("typedConfig", {}).get("config", {})
    policy = config.get("failurePolicy") or ("FAIL_OPEN" if config.get("failOpen") else "")
    return str(policy) or "-"
