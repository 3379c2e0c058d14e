"""Memoised pure derivations over versioned input tables.

Inputs live in tables and change only inside `Database.commit`. A derived function is pure: everything it reads is another
derived call or a tracked table read, and each such read becomes an edge. A commit walks the edges backwards and marks what
*may* be stale; the next read of a stale node verifies it, reruns it only when one of its inputs really changed, and an equal
result stops the wave.

A node that nobody reads or watches lets go of what it read, in turn, before the next commit looks at anything: it is parked, and
no commit brings it up to date: stale, and in the readers of none of its inputs. A read takes it up again, and verifies it.
`collect` frees what is parked.

The algorithm is the one of https://salsa-rs.github.io/salsa/reference/algorithm.html, with edges in both directions: they
give the push candidates of a commit without visiting what did not change.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
UNSET: Any = object()
FEW = 4
"""Up to so many readers a node are a tuple, which takes a quarter of the memory of a set; most nodes have one or two."""


class CycleError(RuntimeError):
    """A derived function reads itself; `args[0]` is the key of the node. Memoised like any other bug of a derivation."""


class Derivation(Generic[P, T]):
    """Says what a node computes, and how it is read.

    `gathers` marks one whose `compute` brings the node's `gathered` items up to date; `is_input` one that reads no other node and
    cannot fail. `picks_from`: the derivation whose value the values of this one are parts of.
    """

    gathers = is_input = False
    picks_from: Derivation[..., Any] | None = None

    def __init__(self, name: str, compute: Callable[..., T], hub: bool) -> None:
        self.__name__, self.compute, self.hub = name, compute, hub

    if TYPE_CHECKING:  # keyword arguments are refused, but a ParamSpec cannot say so

        def __call__(self, db: Database, *args: P.args, **kwargs: P.kwargs) -> T: ...

    else:

        def __call__(self, db, *args):
            """Returns the value at `args`, recorded as a read of the derivation that runs now, if any; raises its error."""
            node = db._nodes[self].get(args)
            if node is None:
                node = db.adopt(self, args)
            if db._reads is not None:
                db._reads[node] = None
            if node.stale:
                db.refresh(node)
            if node.error is not None:
                raise node.error.with_traceback(None)  # one object raised again and again would gather tracebacks
            return node.value

    def reached(self, db: Database, node: Node, before: Any) -> list[Node]:
        """Returns the nodes whose readers a commit is to look at, now that a hub's value changed. `before`: UNSET if it failed or never ran."""
        return [node]

    def __repr__(self) -> str:
        return self.__name__


class Gathered:
    """Items of a gather node: the node of each key, and the items that may have changed since it was verified.

    `changed`: the keys whose items differ from those of the value that was in revision `since`, which is that of before; None where a value
    has no such value before it.
    """

    __slots__ = ("changed", "dirty", "items", "keys", "since")

    def __init__(self) -> None:
        self.since = -1
        self.changed: tuple[Hashable, ...] | None = None
        self.keys: Node | None = None
        self.items: dict[Hashable, Node] = {}
        self.dirty: dict[Node, None] = {}


class Node:
    """One memoised value.

    `value` is the last good one (UNSET before the first success); `error` is what the last run raised, or None.
    `changed_at` and `verified_at` are revisions, -1 for never.
    """

    __slots__ = (
        "args",
        "changed_at",
        "deps",
        "error",
        "fn",
        "gathered",
        "readers",
        "running",
        "stale",
        "value",
        "verified_at",
        "watchers",
    )

    def __init__(self, fn: Derivation[..., Any], args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args
        self.value: Any = UNSET
        self.error: Exception | None = None
        self.deps: tuple[Node, ...] = ()
        self.readers: Collection[Node] = ()
        self.stale, self.running = True, False
        self.changed_at = self.verified_at = -1
        self.watchers = 0
        self.gathered = Gathered() if fn.gathers else None

    @property
    def key(self) -> tuple[Any, ...]:
        """Returns the derivation and its arguments."""
        return (self.fn, *self.args)

    def read_by(self, reader: Node) -> None:
        """Enters a reader."""
        readers = self.readers
        if not readers:
            self.readers = (reader,)
        elif isinstance(readers, set):
            readers.add(reader)
        elif reader not in readers:
            self.readers = {*readers, reader} if len(readers) >= FEW else (*readers, reader)

    def left_by(self, reader: Node) -> None:
        """Takes a reader out, if it is one."""
        readers = self.readers
        if isinstance(readers, set):
            readers.discard(reader)
        elif reader in readers:
            self.readers = tuple(other for other in readers if other is not reader)

    def inputs(self) -> Iterable[Node]:
        """Returns the nodes that this one was computed from, in the order of their first read."""
        if self.gathered is None:
            return self.deps
        keys = self.gathered.keys
        return [*([keys] if keys is not None else []), *self.gathered.items.values()]

    def __repr__(self) -> str:
        return f"<Node {self.key!r}>"


class _Nodes(dict[Derivation[..., Any], dict[tuple[Any, ...], Node]]):
    """The nodes of each derivation, by their arguments."""

    def __missing__(self, fn: Derivation[..., Any]) -> dict[tuple[Any, ...], Node]:
        made: dict[tuple[Any, ...], Node] = {}
        self[fn] = made
        return made


class Database:
    """The graph of derived values, and the tables by name that they are read from."""

    def __init__(self) -> None:
        self.revision = 0
        self.tables: dict[str, Any] = {}
        self.runs = 0
        self.failures = 0
        self.on_run: Callable[[Node], None] | None = None
        self.on_failure: Callable[[Node, Exception], None] | None = None
        self._nodes = _Nodes()
        self._reads: dict[Node, None] | None = None  # by the derivation that runs now, in order
        self._orphans: list[Node] = []
        self._parked: OrderedDict[Node, None] = OrderedDict()  # what one of them reads stands behind it
        self._failed: dict[Node, Exception] | None = (
            None  # in a commit, which may run a node before all of its inputs are up to date
        )
        self._cyclic = False  # counting readers cannot free a cycle

    # -- reads ---------------------------------------------------------------------------------------------------------

    def adopt(self, fn: Derivation[..., Any], args: tuple[Any, ...]) -> Node:
        """Creates a node. It is an orphan, freed by the next `collect`, unless something reads or watches it."""
        node = self._nodes[fn][args] = Node(fn, args)
        if self._reads is None:
            self._orphans.append(node)
        return node

    def refresh(self, node: Node) -> None:
        """Brings a node up to date: verifies its inputs in the order of their first read, and reruns it only if one changed."""
        if not node.stale:
            return
        if node.running:
            self._cyclic = True
            raise CycleError(node.key)
        if self._parked and node in self._parked:
            self._unpark(node)
        if node.verified_at < 0 or node.gathered is not None or not self._verify(node):
            self._run(node)

    def _verify(self, node: Node) -> bool:
        """Returns whether no input changed since the node was verified; then it is verified now."""
        node.running = True
        try:
            for dep in node.deps:
                if dep.stale:
                    if dep.running:
                        return False
                    self.refresh(dep)
                if dep.changed_at > node.verified_at:
                    return False
        finally:
            node.running = False
        node.stale, node.verified_at = False, self.revision
        return True

    def _run(self, node: Node) -> None:
        fn, error = node.fn, None
        if fn.is_input:
            value = fn.compute(self, *node.args)
        else:
            node.running = True
            outer, self._reads = self._reads, {}
            try:
                value = fn.compute(self, *node.args) if node.gathered is None else fn.compute(self, node)
            except Exception as raised:  # a bug in a derivation is memoised like a value; the last good value stays
                value, error = UNSET, raised
            finally:
                reads, self._reads = self._reads, outer
                node.running = False
            if node.gathered is None:
                self._link(node, reads)
        self.runs += 1
        if self.on_run is not None:
            self.on_run(node)
        if error is not None:
            self._fail(node, error)
        elif (
            node.value is UNSET
            or node.error is not None
            or (value is not node.value and (node.gathered is not None or _differ(node.value, value)))
        ):
            node.value, node.error, node.changed_at = value, None, self.revision
        node.stale, node.verified_at = False, self.revision

    def _link(self, node: Node, reads: dict[Node, None]) -> None:
        """Makes what was read the inputs of the node, in the place of what was read before."""
        known = node.deps
        for dep in reads:
            readers = dep.readers
            if not readers:
                dep.readers = (node,)
            elif known or len(readers) >= FEW:
                dep.read_by(node)
            else:  # the first run of a node, which cannot be a reader yet
                dep.readers = (*readers, node)
        for dep in known:
            if dep not in reads:
                self.unread(dep, node)
        node.deps = tuple(reads)

    def _fail(self, node: Node, error: Exception) -> None:
        if node.error is error:  # passed on by an input that failed before
            return
        node.error, node.changed_at = error, self.revision
        if self._failed is None:
            self._tell(node, error)
        else:
            self._failed[node] = error

    def _tell(self, node: Node, error: Exception) -> None:
        self.failures += 1
        if self.on_failure is not None:
            self.on_failure(node, error)
        error.__traceback__ = None  # it was told; kept, it would keep every frame's values alive

    # -- writes --------------------------------------------------------------------------------------------------------

    def commit(self, edits: Iterable[tuple[Any, Hashable, Any]]) -> list[Node]:
        """Applies one transaction of (table, key, row or None); returns the watched nodes whose value it may have changed.

        A watched node is reported once, and again only after it was refreshed.
        """
        if self._reads is not None:
            raise RuntimeError("a derivation must not write")
        self.revision += 1
        first = self.revision
        self._park_orphans()
        todo: list[Node] = []
        for table, key, row in edits:
            table.apply(key, row, todo)
        hit = dict.fromkeys(node for node in todo if node.watchers)
        hubs: list[tuple[Node, Any]] = []
        self._mark(todo, hit, hubs)
        failed: dict[Node, Exception] = {}
        self._failed = failed
        while hubs:  # what many read is looked at now: where it came out equal, its readers need not be
            node, before = hubs.pop()
            self._park_orphans()
            if node in self._parked:
                continue
            self.revision += 1  # later than all that was verified before this hub was marked
            self.refresh(node)
            if node.changed_at >= first:
                if node.watchers:
                    hit[node] = None
                self._mark(node.fn.reached(self, node, before), hit, hubs)
        self._failed = None
        for node, error in failed.items():
            if node.error is error and node not in self._parked:
                self._tell(node, error)
        return list(hit)

    def _mark(self, todo: list[Node], hit: dict[Node, None], hubs: list[tuple[Node, Any]]) -> None:
        """Marks the readers of changed nodes as stale, up to the next hubs, which are collected with their values until now."""
        while todo:
            node = todo.pop()
            for reader in node.readers:
                if reader.gathered is not None:
                    reader.gathered.dirty[node] = None
                if not reader.stale:
                    reader.stale = True
                    if reader.fn.hub:
                        hubs.append((reader, reader.value if reader.error is None else UNSET))
                        continue
                    todo.append(reader)
                    if reader.watchers:
                        hit[reader] = None

    def touch(self, fn: Derivation[..., Any], args: tuple[Any, ...], todo: list[Node]) -> None:
        """Takes note that what a table holds there changed: its node, if any, must run again, and its readers may be stale."""
        node = self._nodes[fn].get(args)
        if node is not None and node.verified_at >= 0:
            node.stale, node.verified_at = True, -1
            todo.append(node)

    # -- lifetime ------------------------------------------------------------------------------------------------------

    def watch(self, fn: Derivation[..., Any], *args: Any) -> Node:
        """Keeps a derived value alive, and has commits report it. The node's `value` is the last good one, or UNSET."""
        node = self._nodes[fn].get(args) or self.adopt(fn, args)
        node.watchers += 1
        self.refresh(node)
        return node

    def unwatch(self, node: Node) -> None:
        """Undoes one `watch`."""
        node.watchers -= 1
        if not node.watchers and not node.readers:
            self._orphans.append(node)

    def unread(self, dep: Node, reader: Node) -> None:
        """`reader` no longer reads `dep`."""
        dep.left_by(reader)
        if not dep.readers and not dep.watchers:
            self._orphans.append(dep)

    def hold(self, node: Node) -> None:
        """Watches a node that is there already. Only where nobody read it any more is it brought up to date now."""
        node.watchers += 1
        if node in self._parked:
            self.refresh(node)

    def _park_orphans(self, most: float = math.inf) -> float:
        """Takes the nodes that nothing watched reaches out of the readers of their inputs, at most so many; returns how many fewer those were."""
        orphans = self._orphans
        while orphans and most > 0:
            most -= 1
            node = orphans.pop()
            if node.readers or node.watchers or node in self._parked:
                continue
            node.stale = True
            self._parked[node] = None
            for dep in node.inputs():
                self.unread(dep, node)
            if node.gathered is not None:
                node.gathered = Gathered()
        return most

    def _unpark(self, node: Node) -> None:
        """Enters a parked node among the readers of its inputs again, because it is read; its reader enters itself later."""
        del self._parked[node]
        self._orphans.append(node)
        for dep in node.deps:
            dep.read_by(node)

    def collect(self) -> int:
        """Frees every node that nothing watched reaches; returns the number of nodes freed."""
        before = len(self)
        self.collect_some(math.inf)
        return before - len(self)

    def collect_some(self, most: float) -> bool:
        """Frees nodes that nothing watched reaches, in at most so many steps; returns whether that were too few. What goes around in circles is
        freed in the last one.

        A node goes before what it reads: one that is still there may be read between two calls, and then verifies what it reads.
        """
        left = self._park_orphans(most)
        while self._parked and left > 0:
            node, _ = self._parked.popitem(last=False)
            del self._nodes[node.fn][node.args]
            left -= 1
        if self._orphans or self._parked:
            return True
        if self._cyclic:
            self._free_cycles()
        return False

    def _free_cycles(self) -> None:
        """Frees by reachability what reads itself in a circle, after a derivation did."""
        live: set[Node] = set()
        todo = [node for node in self.live_nodes() if node.watchers]
        while todo:
            node = todo.pop()
            if node not in live:
                live.add(node)
                todo.extend(node.inputs())
        dead = [node for node in self.live_nodes() if node not in live]
        for node in dead:
            del self._nodes[node.fn][node.args]
            for dep in node.inputs():
                dep.left_by(node)
        self._cyclic = any(isinstance(node.error, CycleError) for node in live)

    def find_node(self, fn: Derivation[..., Any], *args: Any) -> Node | None:
        """Returns the node of a derived value where it exists now; creates and computes nothing."""
        return self._nodes[fn].get(args)

    def live_nodes(self) -> Iterator[Node]:
        """Yields every live node, in no order."""
        return (node for nodes in self._nodes.values() for node in nodes.values())

    def counts(self) -> Iterator[tuple[Derivation[..., Any], int]]:
        """Yields every derivation that has live nodes, and how many."""
        return ((fn, len(nodes)) for fn, nodes in self._nodes.items() if nodes)

    def count_inputs(self) -> int:
        """Returns how many rows and buckets of tables are read by live nodes."""
        return sum(count for fn, count in self.counts() if fn.is_input)

    def nodes_of(self, fn: Derivation[..., Any]) -> Iterator[Node]:
        """Yields the live nodes of a derivation, the oldest first."""
        return iter(self._nodes[fn].values())

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))


def _differ(old: Any, new: Any) -> bool:
    """Returns whether a value is another one. Mappings in another order are: what is built from their items would come in another order."""
    return bool(new != old) or (isinstance(new, dict) and list(new) != list(old))
