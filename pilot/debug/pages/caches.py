"""The debug pages cachez, which shows serialized resources, and krtz, which shows derived values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pilot.debug.page import Later, Query, TextAnswer
from pilot.debug.sources import Sources
from pilot.derive import Node
from pilot.envoy.resource import Resource
from pilot.lib.text import cut, human_size

VALUES, SHOWN = 3, 100
"""Limits of krtz, because a mesh has millions of values: values per derivation, and readers and inputs per value."""
KEY_PARTS = 4


def cachez(sources: Sources, query: Query) -> Any:
    """Return the names of the cached resources. A name occurs once for each variant.

    If the query contains `sizes`, return the sizes of the types instead. If it contains `clear`, drop the resources
    that no connected proxy uses.
    """
    if query.get("clear"):
        sources.fleet.clear_cache()
        return TextAnswer("Cache cleared\n")
    cached = sources.fleet.cached_resources()
    return Later(lambda: _sizes(cached) if query.get("sizes") else _names(cached))


def _names(cached: Mapping[str, Sequence[Mapping[str, Resource]]]) -> dict[str, list[str]]:
    return {
        type_url: names
        for type_url, groups in cached.items()
        if (names := [name for group in groups for name in group])
    }


def _sizes(cached: Mapping[str, Sequence[Mapping[str, Resource]]]) -> dict[str, str]:
    """Return the total size of each type. A resource that several groups share is counted once."""
    sizes_by_type: dict[str, dict[int, int]] = {}
    for type_url, groups in cached.items():
        if sizes := {id(resource): resource.size for group in groups for resource in group.values()}:
            sizes_by_type[type_url] = sizes
    by_type = {type_url: sum(sizes.values()) for type_url, sizes in sizes_by_type.items()}
    return {"total": human_size(sum(by_type.values()))} | {
        type_url: human_size(size) for type_url, size in by_type.items()
    }


def krtz(sources: Sources, query: Query) -> Any:
    """Return the derivations that have values.

    Each has the number of its values, and the readers and inputs of the first values.
    """
    derivations = []
    for uid, (fn, count) in enumerate(sorted(sources.db.counts(), key=lambda item: item[0].__name__)):
        nodes = {_name(node): _neighbours(node) for node in islice(sources.db.nodes_of(fn), VALUES)}
        kind = "table" if fn.is_input else "derived"
        state = {"outputs": {"count": count}, "inputCollection": kind, "inputs": nodes, "synced": True}
        derivations.append({"uid": uid, "name": fn.__name__, "state": state})
    return derivations


def _neighbours(node: Node) -> dict[str, list[str]]:
    return {"outputs": _derivations_of(node.readers), "dependencies": _derivations_of(node.inputs())}


def _derivations_of(nodes: Iterable[Node]) -> list[str]:
    """Return the names of the derivations to which the first nodes belong."""
    return sorted({node.fn.__name__ for node in islice(nodes, SHOWN)})


def _name(node: Node) -> str:
    return f"{node.fn.__name__}({', '.join(_brief(arg) for arg in node.args)})"


def _brief(arg: Any) -> str:
    """Return a key as a string.

    For a larger value return only the name of its type, because facets can be of any size.
    """
    parts = arg if isinstance(arg, tuple) else (arg,)
    is_key = len(parts) <= KEY_PARTS and all(isinstance(part, str | int) for part in parts)
    return "/".join(cut(str(part), 100) for part in parts) if is_key else type(arg).__name__
