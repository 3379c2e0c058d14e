"""What a value was made from: the rows below its node, each with the shortest way to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pilot.derive.graph import UNSET, Database, Node

Way = tuple[Node, ...]


class Reason(NamedTuple):
    """A row that the value was read from. `way`: the nodes from the value's own down to the row's reader."""

    table: str
    key: Hashable
    row: Any
    way: Way


class Explanation(NamedTuple):
    """`rows`: nearest first. `lists`: the hubs that were consulted; what they read is a whole kind, and says nothing."""

    rows: tuple[Reason, ...]
    lists: tuple[Node, ...]


Step = Reason | Node
"""What one step of a walk finds: a row, or a hub that was consulted."""


def explain(db: Database, node: Node, part: Any = UNSET) -> Explanation:
    """Returns all that `walk` finds."""
    return explanation(walk(db, node, part))


def explanation(found: Iterable[Step | None]) -> Explanation:
    """Returns what a walk has found."""
    steps = list(found)
    return Explanation(tuple(s for s in steps if isinstance(s, Reason)), tuple(s for s in steps if isinstance(s, Node)))


def walk(db: Database, node: Node, part: Any = UNSET) -> Iterator[Step | None]:
    """Goes from a node to the rows that it, or what it read, was computed from, and yields one thing a step, so that others can have their turn
    between two. Rows that were looked for and absent are left out.

    `part`: an object inside the node's value, where only its origin is asked for: a node on the way that has it from one
    derivation is followed there, and not to the neighbours. Where that is an item of a gather, what its key names (named tuples)
    was resolved for the list of keys, and counts too.
    """
    tables = {table.row_reader: name for name, table in db.tables.items()}
    seen: set[Node] = set()
    ways: deque[Way] = deque([(node,)])
    named: deque[Way] = deque()
    while ways or named:  # breadth first, so the first way to a node is a shortest one; what keys name comes last
        *way, at = ways.popleft() if ways else named.popleft()
        if at in seen:
            continue
        seen.add(at)
        if at.fn in tables:
            yield Reason(tables[at.fn], at.args[0], at.value, tuple(way)) if at.value is not None else None
        elif at.fn.picks_from is not None:
            ways.extend((*way, at, *below) for below in _ways_to_part(db, at))
            yield None
        elif at.fn.hub and at is not node:
            yield at
        else:
            item = (
                next((source for source in at.inputs() if _holds(source.value, part)), None)
                if part is not UNSET
                else None
            )
            ways.extend((*way, at, source) for source in ((item,) if item is not None else at.inputs()))
            yield None
            if item is not None and at.gathered is not None and at.gathered.keys is not None:
                for below in _named_below(at.gathered.keys, frozenset(_names_in(item.args[0]))):
                    named.extend([(*way, at, *below)] if below else ())
                    yield None


def find_origin(node: Node, value: Any) -> Node | None:
    """Returns the nearest node below (or this one) that computed this very object; hubs and rows are not entered."""
    return next((found for found in search_origin(node, value) if found is not None), None)


def search_origin(node: Node, value: Any) -> Iterator[Node | None]:
    """Yields what `find_origin` returns, after a None for every node before it."""
    seen = {node: None}
    queue = [node]
    for at in queue:
        if at.value is value:
            yield at
            return
        for source in at.inputs():
            if source not in seen and not source.fn.hub:
                seen[source] = None
                queue.append(source)
        yield None


def _ways_to_part(db: Database, picked: Node) -> Iterator[Way]:
    """Returns the way to the innermost node below that made the picked value, alone or in a mapping; none where the value is None."""
    at = db.find_node(picked.fn.picks_from) if picked.fn.picks_from is not None else None
    way: Way = ()
    while at is not None and picked.value is not None:
        inner = next((source for source in at.inputs() if _holds(source.value, picked.value)), None)
        if inner is None:
            yield (*way, at)
            return
        at, way = inner, (*way, at)


def _holds(value: Any, part: Any) -> bool:
    """Returns whether a part is a value, or in its mappings and in the named tuples of these."""
    if value is part:
        return True
    if isinstance(value, Mapping):
        return any(_holds(item, part) for item in value.values())
    return hasattr(value, "_fields") and any(item is part for item in value)


def _named_below(keys: Node, names: frozenset[Any]) -> Iterator[Way]:
    """Yields the ways to nodes below a list of keys that are about one of the names: an argument is that name; () for every other node. Hubs are
    not entered."""
    ways: dict[Node, Way] = {keys: (keys,)}
    queue = [keys]
    for at in queue:
        for source in at.inputs():
            way: Way = ()
            if source not in ways and not source.fn.hub:
                ways[source] = (*ways[at], source)
                if names.isdisjoint(source.args):
                    queue.append(source)
                else:
                    way = ways[source]
            yield way


def _names_in(value: Any) -> Iterator[Hashable]:
    """Returns the named tuples in a key: tuples, named tuples and structs are looked into."""
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            yield value
        for item in value:
            yield from _names_in(item)
    else:
        for field in getattr(value, "__struct_fields__", ()):
            yield from _names_in(getattr(value, field))
