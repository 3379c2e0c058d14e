"""Explanations: the rows from which a value was computed, each with the shortest path to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pilot.derive.graph import UNSET, Database, Node

Path = tuple[Node, ...]


class Reason(NamedTuple):
    """A row that contributed to a value. `path` starts at the value's node and ends at the reader of the row."""

    table: str
    key: Hashable
    row: Any
    path: Path


class Explanation(NamedTuple):
    """The rows from which a value was computed, nearest first, and the hubs that were encountered.

    A hub reads all objects of a kind. Its inputs explain nothing and are omitted.
    """

    rows: tuple[Reason, ...]
    lists: tuple[Node, ...]


Step = Reason | Node
"""A row or a hub that a walk encounters."""


def explain(db: Database, node: Node, part: Any = UNSET) -> Explanation:
    """Return the explanation of a node's value or, if `part` is given, of this part of the value."""
    return explanation(walk(db, node, part))


def explanation(walked: Iterable[Step | None]) -> Explanation:
    """Return the steps of a walk as an explanation."""
    steps = list(walked)
    return Explanation(tuple(s for s in steps if isinstance(s, Reason)), tuple(s for s in steps if isinstance(s, Node)))


def walk(db: Database, node: Node, part: Any = UNSET) -> Iterator[Step | None]:
    """Walk from a node to the rows from which it was computed. For each visited node, yield a row, a hub or None.

    Callers may pause between two steps. Absent rows are omitted.

    `part` is an object inside the node's value. If it is given, only this object is explained: if a node received it
    from one of its inputs, the walk continues with this input and ignores the others. If this input is an item of a
    gather, the rows to which its key refers are included too, because the list of keys was derived from them.
    """
    tables = {table.row_reader: name for name, table in db.tables.items()}
    visited: set[Node] = set()
    paths: deque[Path] = deque([(node,)])
    key_paths: deque[Path] = deque()
    while (
        paths or key_paths
    ):  # breadth first, so the first path to a node is a shortest path; rows that keys refer to come last
        *path, at = paths.popleft() if paths else key_paths.popleft()
        if at in visited:
            continue
        visited.add(at)
        if at.fn in tables:
            yield Reason(tables[at.fn], at.args[0], at.value, tuple(path)) if at.value is not None else None
        elif at.fn.picks_from is not None:
            paths.extend((*path, at, *below) for below in _paths_to_part(db, at))
            yield None
        elif at.fn.hub and at is not node:
            yield at
        else:
            item = (
                next((source for source in at.inputs() if _holds(source.value, part)), None)
                if part is not UNSET
                else None
            )
            paths.extend((*path, at, source) for source in ((item,) if item is not None else at.inputs()))
            yield None
            if item is not None and at.gathered is not None and at.gathered.keys is not None:
                for below in _paths_to_names(at.gathered.keys, frozenset(_names_in(item.args[0]))):
                    key_paths.extend([(*path, at, *below)] if below else ())
                    yield None


def find_origin(node: Node, value: Any) -> Node | None:
    """Return the node that computed this very object. It is the given node or the nearest such node below it.

    The search does not enter hubs.
    """
    return next((origin for origin in search_origin(node, value) if origin is not None), None)


def search_origin(node: Node, value: Any) -> Iterator[Node | None]:
    """Yield None for each visited node. Finally, yield the result of `find_origin` if there is one."""
    visited = {node: None}
    queue = [node]
    for at in queue:
        if at.value is value:
            yield at
            return
        for source in at.inputs():
            if source not in visited and not source.fn.hub:
                visited[source] = None
                queue.append(source)
        yield None


def walk_readers(nodes: Iterable[Node], passes_on: Callable[[Node], bool] = lambda at: True) -> Iterator[Node]:
    """Yield the given nodes and all nodes that were computed from them, nearest first. Callers may pause between two.

    The search stops at hubs, like `walk`. It also stops where a node has nothing to pass on: at an item that its gather
    omits, and where `passes_on` returns False.
    """
    visited = dict.fromkeys(nodes)
    queue = list(visited)
    for at in queue:
        yield at
        if not passes_on(at):
            continue
        for reader in tuple(at.readers):
            is_omitted = reader.gathered is not None and reader.gathered.keys is not at and at.value is None
            if reader not in visited and not reader.fn.hub and not is_omitted:
                visited[reader] = None
                queue.append(reader)


def _paths_to_part(db: Database, picked: Node) -> Iterator[Path]:
    """Yield the path to the innermost node that computed the picked value, if there is such a node."""
    at = db.find_node(picked.fn.picks_from) if picked.fn.picks_from is not None else None
    path: Path = ()
    while at is not None and picked.value is not None:
        inner = next((source for source in at.inputs() if _holds(source.value, picked.value)), None)
        if inner is None:
            yield (*path, at)
            return
        at, path = inner, (*path, at)


def _holds(value: Any, part: Any) -> bool:
    """Return whether `part` is the value itself, an item of its mappings, or a field of a named tuple in them."""
    if value is part:
        return True
    if isinstance(value, Mapping):
        return any(_holds(item, part) for item in value.values())
    return hasattr(value, "_fields") and any(item is part for item in value)


def _paths_to_names(keys: Node, names: frozenset[Any]) -> Iterator[Path]:
    """Search the nodes below a list of keys. If a node has one of the names as an argument, yield the path to it. For
    any other node, yield ().

    The search does not enter hubs.
    """
    paths: dict[Node, Path] = {keys: (keys,)}
    queue = [keys]
    for at in queue:
        for source in at.inputs():
            path: Path = ()
            if source not in paths and not source.fn.hub:
                paths[source] = (*paths[at], source)
                if names.isdisjoint(source.args):
                    queue.append(source)
                else:
                    path = paths[source]
            yield path


def _names_in(value: Any) -> Iterator[Hashable]:
    """Yield the named tuples in a key. Tuples, named tuples and structs are searched recursively."""
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            yield value
        for item in value:
            yield from _names_in(item)
    else:
        for field in getattr(value, "__struct_fields__", ()):
            yield from _names_in(getattr(value, field))
