"""What the process keeps so that it is not made again: cachez (serialized resources) and krtz (derived values)."""

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
"""Values of one derivation that krtz names, and readers and inputs of each that it looks at: a mesh has millions."""
KEY_PARTS = 4


def cachez(sources: Sources, query: Query) -> Any:
    """Returns the names of the serialized resources that are kept, a name for each variant; `sizes`: how much they take; `clear`: gives up those
    that no connected proxy is to have."""
    if query.get("clear"):
        sources.fleet.clear_cache()
        return TextAnswer("Cache cleared\n")
    kept = sources.fleet.cached_resources()
    return Later(lambda: _sizes(kept) if query.get("sizes") else _names(kept))


def _names(kept: Mapping[str, Sequence[Mapping[str, Resource]]]) -> dict[str, list[str]]:
    return {
        type_url: names for type_url, groups in kept.items() if (names := [name for group in groups for name in group])
    }


def _sizes(kept: Mapping[str, Sequence[Mapping[str, Resource]]]) -> dict[str, str]:
    """Returns the size of each type; a resource that several groups share counts once."""
    found: dict[str, dict[int, int]] = {}
    for type_url, groups in kept.items():
        if sizes := {id(resource): resource.size for group in groups for resource in group.values()}:
            found[type_url] = sizes
    by_type = {type_url: sum(sizes.values()) for type_url, sizes in found.items()}
    return {"total": human_size(sum(by_type.values()))} | {
        type_url: human_size(size) for type_url, size in by_type.items()
    }


def krtz(sources: Sources, query: Query) -> Any:
    """Returns the derivations that have values now: how many, and of the first of them what reads and what is read."""
    found = []
    for uid, (fn, count) in enumerate(sorted(sources.db.counts(), key=lambda item: item[0].__name__)):
        nodes = {_name(node): _neighbours(node) for node in islice(sources.db.nodes_of(fn), VALUES)}
        kind = "table" if fn.is_input else "derived"
        state = {"outputs": {"count": count}, "inputCollection": kind, "inputs": nodes, "synced": True}
        found.append({"uid": uid, "name": fn.__name__, "state": state})
    return found


def _neighbours(node: Node) -> dict[str, list[str]]:
    return {"outputs": _derivations_of(node.readers), "dependencies": _derivations_of(node.inputs())}


def _derivations_of(nodes: Iterable[Node]) -> list[str]:
    """Returns the derivations that the first of some nodes are of."""
    return sorted({node.fn.__name__ for node in islice(nodes, SHOWN)})


def _name(node: Node) -> str:
    return f"{node.fn.__name__}({', '.join(_brief(arg) for arg in node.args)})"


def _brief(arg: Any) -> str:
    """Returns a key as it is written, and of whatever is larger only what it is: facets can be of any size."""
    parts = arg if isinstance(arg, tuple) else (arg,)
    is_key = len(parts) <= KEY_PARTS and all(isinstance(part, str | int) for part in parts)
    return "/".join(cut(str(part), 100) for part in parts) if is_key else type(arg).__name__
