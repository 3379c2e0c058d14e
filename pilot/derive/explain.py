"""What a value was made from: the rows below its node, each with the shortest way to it."""
from __future__ import annotations

from collections.abc import Hashable, Iterable
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
    derivation is followed there, and not to the neighbours.
    """
    tables = {table.row_reader: name for name, table in db.tables.items()}
    rows: list[Reason] = []
    lists: list[Node] = []
    ways: dict[Node, tuple[Node, ...]] = {node: (node,)}
    queue = [node]
    for at in queue:  # grows while it is walked: breadth first, so the first way to a node is a shortest one
        for source in _sources(at, part):
            if source in ways:
                continue
            ways[source] = (*ways[at], source)
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


def _sources(node: Node, part: Any) -> Iterable[Node]:
    if part is not UNSET:
        for source in node.inputs():
            if source.value is part:
                return (source,)
    return node.inputs()
