"""What a value was made from: the rows below its node, each with the shortest way to it."""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from pilot.derive.graph import UNSET, Database, Node


class Reason(NamedTuple):
    """A row that the value was read from. `way`: the nodes from the value's own down to the row's reader."""

    table: str
    key: Hashable
    row: Any
    way: tuple[Node, ...]


class Explanation(NamedTuple):
    """`rows`: nearest first. `lists`: the hubs that were consulted; what they read is a whole kind, and says nothing."""

    rows: tuple[Reason, ...]
    lists: tuple[Node, ...]


def explain(db: Database, node: Node, part: Any = UNSET) -> Explanation:
    """Walk from a node to the rows that it, or what it read, was computed from. Rows that were looked for and absent are left out.

    `part`: an object inside the node's value, where only its origin is asked for: a node on the way that has it from one
    derivation is followed there, and not to the neighbours. Where that is an item of a gather, what its key names (named tuples)
    was resolved for the list of keys, and counts too.
    """
    tables = {table.row_reader: name for name, table in db.tables.items()}
    rows: list[Reason] = []
    lists: list[Node] = []
    ways: dict[Node, tuple[Node, ...]] = {node: (node,)}
    queue = [node]
    for at in queue:  # grows while it is walked: breadth first, so the first way to a node is a shortest one
        for way in _ways_on(at, part):
            source = way[-1]
            if source in ways:
                continue
            ways[source] = (*ways[at], *way)
            if source.fn in tables:
                if source.value is not None:
                    rows.append(Reason(tables[source.fn], source.args[0], source.value, ways[at]))
            elif source.fn.hub:
                lists.append(source)
            else:
                queue.append(source)
    return Explanation(tuple(rows), tuple(lists))


def find_origin(node: Node, value: Any) -> Node | None:
    """The nearest node below (or this one) that computed this very object; hubs and rows are not entered."""
    seen = {node: None}
    queue = [node]
    for at in queue:
        if at.value is value:
            return at
        for source in at.inputs():
            if source not in seen and not source.fn.hub:
                seen[source] = None
                queue.append(source)
    return None


def _ways_on(node: Node, part: Any) -> Iterable[tuple[Node, ...]]:
    """From a node to what it read; to its origin and what that one's key names, where `part` has one here."""
    if part is not UNSET:
        for source in node.inputs():
            if source.value is part:
                if node.gathered is None or node.gathered.keys is None:
                    return ((source,),)
                return ((source,), *_named_below(node.gathered.keys, frozenset(_names_in(source.args[0]))))
    return ((source,) for source in node.inputs())


def _named_below(keys: Node, names: frozenset[Any]) -> Iterator[tuple[Node, ...]]:
    """The nodes below a list of keys that are about one of the names: an argument is that name. Hubs are not entered."""
    ways: dict[Node, tuple[Node, ...]] = {keys: (keys,)}
    queue = [keys]
    for at in queue:
        for source in at.inputs():
            if source in ways or source.fn.hub:
                continue
            ways[source] = (*ways[at], source)
            if names.isdisjoint(source.args):
                queue.append(source)
            else:
                yield ways[source]


def _names_in(value: Any) -> Iterator[Hashable]:
    """The named tuples in a key: tuples, named tuples and structs are looked into."""
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            yield value
        for item in value:
            yield from _names_in(item)
    else:
        for field in getattr(value, "__struct_fields__", ()):
            yield from _names_in(getattr(value, field))
