"""Memoised pure derivations over versioned input tables.

Inputs are stored in tables and change only in `Database.commit`. A derived function is pure. It reads only other
derived values and table rows, and each read is recorded as an edge. A commit follows the edges backwards and marks the
nodes that may be stale. The next read of a stale node verifies the node: it reruns only if one of its inputs changed,
and an equal result stops the propagation.

A node without readers and watchers is parked at the start of the next commit. It is marked stale and removed from the
readers of its inputs, so that commits no longer reach it. A later read verifies the node and links it again. `collect`
frees parked nodes.

The algorithm is that of https://salsa-rs.github.io/salsa/reference/algorithm.html. Here, however, edges run in both
directions, so a commit finds the watched nodes that it affects without visiting the others.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from pilot.derive.small_sets import FEW, ManyItems, SmallSet, with_item, without_item

if TYPE_CHECKING:
    from pilot.derive.assembly import Assembly, Relisting

P = ParamSpec("P")
T = TypeVar("T")
Change = tuple[Any, Hashable, Any]
"""A table, a key, and the new row, which is None if the row is deleted."""
UNSET: Any = object()
PARKED_BY_COMMIT = 4_000
"""Maximum number of steps in which a commit parks orphans, which takes a few milliseconds. Commits update the remaining
orphans like other nodes, until they are collected."""


MARKED_IN_A_STEP = 1_000
"""Number of readers after which a commit that marks nodes may pause. It marks them in less than a millisecond."""


class CycleError(RuntimeError):
    """A derived function reads its own value. `args[0]` is the node's key. The error is memoised like other errors."""


class Paused(BaseException):
    """A refresh was interrupted. `nodes` are the nodes that were being refreshed, from the innermost outwards.

    It is not an error of a derivation, and is raised only inside of `Database.pausing`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []


class Derivation(Generic[P, T]):
    """A function whose calls are nodes. There is one node for each tuple of arguments.

    gathers: Whether `compute` refreshes the node's `gathered` items.
    has_steps: Whether `compute` returns a generator, which can be interrupted where it yields.
    is_input: Whether `compute` reads no other node and cannot fail.
    picks_from: The derivation from whose value this derivation picks its values, or None.
    """

    gathers = is_input = has_steps = False
    picks_from: Derivation[..., Any] | None = None

    def __init__(self, name: str, compute: Callable[..., T], hub: bool) -> None:
        self.__name__, self.compute, self.hub = name, compute, hub

    if TYPE_CHECKING:  # keyword arguments are rejected, but a ParamSpec cannot express this

        def __call__(self, db: Database, *args: P.args, **kwargs: P.kwargs) -> T: ...

    else:

        def __call__(self, db, *args):
            """Return the value for `args`. If a derivation is running, record that it reads the value.

            Raise the node's error if the derivation failed.
            """
            node = db._nodes[self].get(args)
            if node is None:
                node = db.adopt(self, args)
            if db._reads is not None:
                db._reads[node] = None
            if node.stale:
                db.refresh(node)
                if db.must_pause is not None and db._reads is not None and not self.is_input and db.must_pause():
                    raise Paused
            if node.error is not None:
                raise node.error.with_traceback(None)  # raised repeatedly, the error would accumulate tracebacks
            return node.value

    def step(self, *args: Hashable) -> Step:
        """Return what a derivation with steps yields before it reads the value for `args`, if it reads many values.

        It must read the value then, because the value stays in memory if nothing has read it.
        """
        return self, args

    def reached(self, db: Database, node: Node, before: Any) -> Iterable[Node]:
        """Return the nodes whose readers must be marked after the value of this hub changed. They are marked in slices.

        `before` is the previous value, or UNSET if the hub has failed or has never run.
        """
        return [node]

    def __repr__(self) -> str:
        return self.__name__


Step = tuple[Derivation[..., Any], tuple[Hashable, ...]] | None
"""A derivation and the arguments for which it is refreshed before the next step, or None."""
Steps = Generator[Step, None, T]
"""The steps of a derivation, which return its value."""


class Gathered:
    """The items of a gather node.

    keys: The node that lists the keys.
    items: The item node for each key.
    dirty: Items that may have changed since the gather was last verified.
    refreshed: Items that were dirty, and were refreshed before a pause.
    listed: The list of keys for which `items` was last updated.
    changed: Keys whose items differ from the previous value, or None if they are unknown.
    since: The revision of the previous value.
    relisting: The interrupted replacement of the list of keys, or None.
    assembly: The interrupted copy of the values, or None. `refreshed` are then the items that may differ from it.
    """

    __slots__ = ("assembly", "changed", "dirty", "items", "keys", "listed", "refreshed", "relisting", "since")

    def __init__(self) -> None:
        self.relisting: Relisting | None = None
        self.assembly: Assembly | None = None
        self.since = -1
        self.changed: tuple[Hashable, ...] | None = None
        self.keys: Node | None = None
        self.items: dict[Hashable, Node] = {}
        self.listed: tuple[Hashable, ...] | None = None
        self.dirty: dict[Node, None] = {}
        self.refreshed: dict[Node, None] = {}


class _Suspended(NamedTuple):
    """A derivation that was interrupted after one of its steps, what it has read, and the revision at that time.

    `due` is the node that is refreshed before the next step, or None. `value` is the value if no step is left.
    """

    steps: Steps[Any]
    reads: dict[Node, None]
    revision: int
    due: Node | None
    value: Any = UNSET


class Node:
    """A memoised value.

    `value` is the last good value, or UNSET before the first success. `error` is the exception of the last run, or
    None. `changed_at` and `verified_at` are revisions, or -1 if there is none.
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
        self.readers: SmallSet[Node] = ()
        self.stale, self.running = True, False
        self.changed_at = self.verified_at = -1
        self.watchers = 0
        self.gathered = Gathered() if fn.gathers else None

    @property
    def key(self) -> tuple[Any, ...]:
        """The derivation followed by its arguments."""
        return (self.fn, *self.args)

    def read_by(self, reader: Node) -> None:
        """Add a reader."""
        self.readers = with_item(self.readers, reader, ManyItems)

    def left_by(self, reader: Node) -> None:
        """Remove a reader if it is present."""
        self.readers = without_item(self.readers, reader)

    def inputs(self) -> Iterable[Node]:
        """Return the nodes from which this node was computed, in the order in which they were first read."""
        if self.gathered is None:
            return self.deps
        keys = self.gathered.keys
        return [*([keys] if keys is not None else []), *self.gathered.items.values()]

    def __repr__(self) -> str:
        return f"<Node {self.key!r}>"


class _Nodes(dict[Derivation[..., Any], dict[tuple[Any, ...], Node]]):
    """Nodes, keyed by derivation and arguments."""

    def __missing__(self, fn: Derivation[..., Any]) -> dict[tuple[Any, ...], Node]:
        nodes: dict[tuple[Any, ...], Node] = {}
        self[fn] = nodes
        return nodes


class Database:
    """The graph of derived values and the tables that they read.

    `on_failure` is called with each node whose derivation raised an exception.
    """

    def __init__(self, on_failure: Callable[[Node, Exception], None] | None = None) -> None:
        self.revision = 0
        self.tables: dict[str, Any] = {}
        self.runs = 0
        self.failures = 0
        self.on_run: Callable[[Node], None] | None = None
        self.must_pause: Callable[[], bool] | None = None
        self._on_failure = on_failure
        self._nodes = _Nodes()
        self._reads: dict[Node, None] | None = None  # by the running derivation, in order
        self._suspended: dict[Node, _Suspended] = {}
        self._orphans: list[Node] = []
        self._parked: OrderedDict[Node, None] = OrderedDict()  # a node precedes the nodes that it reads
        self._unlinking: dict[Node, Iterator[Node]] = {}  # parked nodes, and the inputs of which they are still readers
        self._failed: dict[Node, Exception] | None = (
            None  # a dict during a commit, because a commit may run a node before all of its inputs are current
        )
        self._cyclic = False  # reader counts cannot free a cycle

    # -- reads ---------------------------------------------------------------------------------------------------------

    def adopt(self, fn: Derivation[..., Any], args: tuple[Any, ...]) -> Node:
        """Create a node. The next `collect` frees it unless another node reads it or it is watched."""
        node = self._nodes[fn][args] = Node(fn, args)
        if self._reads is None:
            self._orphans.append(node)
        return node

    def find_or_adopt(self, fn: Derivation[..., Any], args: tuple[Any, ...]) -> Node:
        """Return the node for the arguments of a function. The caller must read or watch it."""
        node = self._nodes[fn].get(args)
        if node is None:
            return self.adopt(fn, args)
        self._unpark(node)
        return node

    def refresh(self, node: Node) -> None:
        """Bring a node up to date. Its inputs are verified in the order of their first read, and it reruns only if one
        of them changed."""
        if not node.stale:
            return
        if node.running:
            self._cyclic = True
            raise CycleError(node.key)
        self._unpark(node)
        if node.verified_at < 0 or node.gathered is not None or not self._verify(node):
            self._run(node)

    def _verify(self, node: Node) -> bool:
        """Return whether all inputs are unchanged since the node was verified. If so, mark the node as verified."""
        node.running = True
        try:
            for dep in node.deps:
                if dep.stale:
                    if dep.running:
                        return False
                    self.refresh(dep)
                    if self.must_pause is not None and not dep.fn.is_input and self.must_pause():
                        raise Paused
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
            suspended = self._resumable(node) if self._suspended else None
            linked = len(suspended.reads) if suspended is not None else 0
            node.running = True
            outer, self._reads = self._reads, {} if suspended is None else suspended.reads
            try:
                if suspended is not None and suspended.value is not UNSET:
                    value = suspended.value
                elif suspended is not None:
                    value = self._run_steps(node, suspended.steps, suspended.due)
                elif fn.has_steps:
                    value = self._run_steps(node, fn.compute(self, *node.args), None)
                else:
                    value = fn.compute(self, *node.args) if node.gathered is None else fn.compute(self, node)
            except Exception as raised:  # a bug is memoised like a value, and the last good value stays
                value, error = UNSET, raised
            except Paused as paused:
                paused.nodes.append(node)
                if node.gathered is None:  # keep what it has read until it runs again
                    self._link_more(node, self._reads or {}, linked)
                    node.verified_at = -1
                raise
            finally:
                reads, self._reads = self._reads, outer
                node.running = False
            if node.gathered is None:
                self._link(node, reads, linked)
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

    def _run_steps(self, node: Node, steps: Steps[Any], due: Node | None) -> Any:
        """Run the steps of a derivation and return its value. If it must pause, keep the remaining steps.

        `due` is the node that is refreshed before the first of them.
        """
        reads = self._reads
        assert reads is not None
        while True:
            try:
                if due is not None and due.stale:
                    self.refresh(due)
                step = next(steps)
                due = self.find_or_adopt(*step) if step is not None else None
                if self.must_pause is not None and self.must_pause():
                    raise Paused
            except StopIteration as stop:
                if self.must_pause is None or not self.must_pause():
                    return stop.value
                self._suspended[node] = _Suspended(steps, {**reads}, self.revision, None, stop.value)
                raise Paused from None  # the value is compared with the previous one after the pause
            except Paused:
                if inspect.getgeneratorstate(steps) != inspect.GEN_CLOSED:  # no step was interrupted itself
                    self._suspended[node] = _Suspended(steps, {**reads}, self.revision, due)
                    if due is not None:
                        reads[due] = None  # linked, so that it is not freed
                raise

    def _resumable(self, node: Node) -> _Suspended | None:
        """Return the suspended steps of a node, or None if there are none or something that they have read has
        changed."""
        suspended = self._suspended.get(node)
        if suspended is not None and suspended.revision != self.revision:  # otherwise nothing can have changed
            for dep in suspended.reads:
                if dep.stale:
                    self.refresh(dep)
            if any(dep.changed_at > suspended.revision for dep in suspended.reads):
                suspended = None
        self._suspended.pop(node, None)
        return suspended

    def _link(self, node: Node, reads: dict[Node, None], linked: int) -> None:
        """Replace the inputs of the node with the nodes that it has read. It is a reader of the first `linked`."""
        previous = node.deps
        for dep in itertools.islice(reads, linked, None):
            readers = dep.readers
            if not readers:
                dep.readers = (node,)
            elif previous or len(readers) >= FEW:
                dep.readers = with_item(readers, node, ManyItems)
            else:  # on its first run the node cannot be a reader yet
                dep.readers = (*readers, node)
        for dep in itertools.filterfalse(reads.__contains__, previous):
            self.unread(dep, node)
        node.deps = tuple(reads)

    @staticmethod
    def _link_more(node: Node, reads: dict[Node, None], linked: int) -> None:
        """Add what an interrupted node has read to its inputs, except the first `linked`, which are among them."""
        more = tuple(itertools.islice(reads, linked, None))
        for dep in more:
            dep.read_by(node)
        node.deps = tuple(dict.fromkeys((*node.deps, *more))) if not linked else (*node.deps, *more)

    def _fail(self, node: Node, error: Exception) -> None:
        if node.error is error:  # an input failed before and raised it again
            return
        node.error, node.changed_at = error, self.revision
        if self._failed is None:
            self._report(node, error)
        else:
            self._failed[node] = error

    def _report(self, node: Node, error: Exception) -> None:
        self.failures += 1
        if self._on_failure is not None:
            self._on_failure(node, error)
        error.__traceback__ = None  # it would keep the values of every frame alive

    @contextlib.contextmanager
    def pausing(self, must_pause: Callable[[], bool]) -> Iterator[None]:
        """Interrupt refreshes as soon as `must_pause` returns True: raise Paused after the next value that a derivation
        reads has been refreshed, or between two of its steps.

        The refreshed values remain up to date. If the same refresh is repeated, a gather continues with its next item,
        and a derivation with steps with its next step. Any other derivation runs again from its beginning, but does not
        refresh these values again.
        """
        self.must_pause = must_pause
        try:
            yield
        finally:
            self.must_pause = None

    def pause_if_due(self) -> None:
        """Raise Paused if refreshes must be interrupted. A reader calls this between parts that are not repeated."""
        if self.must_pause is not None and self.must_pause():
            raise Paused

    # -- writes --------------------------------------------------------------------------------------------------------

    def commit(self, edits: Iterable[Change]) -> list[Node]:
        """Apply the edits as one transaction, and return the watched nodes that it may have changed.

        An edit consists of a table, a key, and a row or None. A watched node that was returned is not returned again
        until it has been refreshed.
        """
        steps = self.commit_in_steps(edits)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    def commit_in_steps(self, edits: Iterable[Change]) -> Generator[None, None, list[Node]]:
        """Commit the edits in steps, and return what `commit` returns.

        Between two steps, values may be read and other edits may be committed. Values that are read then may not yet
        take all of the edits into account. Reported are only failures that remain after the last step. Inside of
        `pausing`, the generator yields when it must pause. Elsewhere, it does not yield.
        """
        if self._reads is not None:
            raise RuntimeError("a derivation must not write")
        self.revision += 1
        first = self.revision
        parking = self._park_orphans(PARKED_BY_COMMIT)
        outer, failed = self._failed, {} if self._failed is None else self._failed
        self._failed = failed
        hit: dict[Node, None] = {}
        hubs: deque[tuple[Node, Any]] = deque()
        for _ in self._apply(edits, hit, hubs):
            yield
        # Refresh hubs now: the readers of an unchanged hub need not be marked. The hubs that were marked first are
        # refreshed first, so that a hub that reads many of them is refreshed once, and not after each of them.
        while hubs:
            node, before = hubs.popleft()
            parking = self._park_orphans(parking)
            if node in self._parked or not (node.readers or node.watchers):
                continue
            self.revision += 1  # later than every verification before this hub was marked
            try:
                self.refresh(node)
            except Paused:
                hubs.appendleft((node, before))
                yield
                continue
            if node.changed_at >= first:
                if node.watchers:
                    hit[node] = None
                for reached in node.fn.reached(self, node, before):
                    yield from self._mark([reached], hit, hubs)
                    if self.must_pause is not None and self.must_pause():
                        yield
                        self.revision += 1  # later than every verification during the pause
            if self.must_pause is not None and self.must_pause():
                yield
        self._failed = outer
        if outer is None:
            self._report_remaining(failed)
        return list(hit)

    def _report_remaining(self, failed: dict[Node, Exception]) -> None:
        """Report failures during a commit. A node that is stale now runs again when it is read, and may fail again."""
        for node, error in failed.items():
            if node.error is not error or node in self._parked:
                continue
            if node.stale:
                node.verified_at = -1
            else:
                self._report(node, error)

    def _apply(
        self, edits: Iterable[Change], hit: dict[Node, None], hubs: deque[tuple[Node, Any]]
    ) -> Generator[None, None, None]:
        """Apply edits to the tables and mark what reads them. Yield when the commit must pause."""
        todo: list[Node] = []
        for table, key, row in edits:
            table.apply(key, row, todo)
            if self.must_pause is not None and self.must_pause():
                hit |= dict.fromkeys(node for node in todo if node.watchers)
                yield from self._mark(todo, hit, hubs)
                yield
                self.revision += 1  # later than every verification during the pause
        hit |= dict.fromkeys(node for node in todo if node.watchers)
        yield from self._mark(todo, hit, hubs)

    def _mark(
        self, todo: list[Node], hit: dict[Node, None], hubs: deque[tuple[Node, Any]]
    ) -> Generator[None, None, None]:
        """Mark the readers of changed nodes as stale, up to the next hubs. Append these hubs to `hubs` with their
        current values. Yield when the commit must pause."""
        marked = 0
        while todo:
            if marked >= MARKED_IN_A_STEP:
                marked = 0
                if self.must_pause is not None and self.must_pause():
                    yield
                    self.revision += 1  # later than every verification during the pause
            node = todo.pop()
            marked += len(node.readers)
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
        """Record a change to a table. If the changed row or bucket has a node, the node must rerun and is appended to
        `todo`, because its readers may be stale."""
        node = self._nodes[fn].get(args)
        if node is not None and node.verified_at >= 0:
            node.stale, node.verified_at = True, -1
            todo.append(node)

    def has_nodes(self, fn: Derivation[..., Any]) -> bool:
        """Return whether a derivation has been called. Otherwise, changes of what it reads need not be recorded."""
        return bool(self._nodes.get(fn))

    # -- lifetime ------------------------------------------------------------------------------------------------------

    def watch(self, fn: Derivation[..., Any], *args: Any) -> Node:
        """Return the refreshed node of a derived value. The value stays alive, and commits report when they may have
        changed it."""
        node = self.watch_later(fn, *args)
        self.refresh(node)
        return node

    def watch_later(self, fn: Derivation[..., Any], *args: Any) -> Node:
        """Return the node of a derived value, which is watched from its first refresh."""
        node = self.find_or_adopt(fn, args)
        node.watchers += 1
        return node

    def unwatch(self, node: Node) -> None:
        """Undo one call of `watch` or `hold`."""
        node.watchers -= 1
        if not node.watchers and not node.readers:
            self._orphans.append(node)

    def unread(self, dep: Node, reader: Node) -> None:
        """Record that `reader` no longer reads `dep`."""
        dep.left_by(reader)
        if not dep.readers and not dep.watchers:
            self._orphans.append(dep)

    def hold(self, node: Node) -> None:
        """Watch an existing node. It is refreshed only if it is parked."""
        node.watchers += 1
        if node in self._parked:
            self.refresh(node)

    def _park_orphans(self, most: float = math.inf) -> float:
        """Park nodes that have no readers and no watchers, in about `most` steps. Each node is a step, and each of its
        inputs. Return the number of steps that are left."""
        orphans, unlinking = self._orphans, self._unlinking
        while most > 0 and (unlinking or orphans):
            most -= 1
            if not unlinking:
                node = orphans.pop()
                if node.readers or node.watchers or node in self._parked:
                    continue
                node.stale = True
                self._suspended.pop(node, None)
                self._parked[node] = None
                unlinking[node] = iter(node.inputs())
                if node.gathered is not None:
                    node.gathered = Gathered()
            node, inputs = next(iter(unlinking.items()))
            for dep in inputs:
                most -= 1
                self.unread(dep, node)
                if most <= 0:
                    break
            else:
                del unlinking[node]
        return most

    def _unpark(self, node: Node) -> None:
        """Link a node to its inputs again if it is parked, before it is read. Its reader links itself later.

        Its inputs must not be freed either, even if its refresh is interrupted before it has verified them.
        """
        todo = [node] if self._parked else []
        while todo:
            unparked = todo.pop()
            if unparked not in self._parked:
                continue
            del self._parked[unparked]
            self._orphans.append(unparked)
            for dep in self._unlinking.pop(unparked, ()) if unparked.gathered is not None else ():
                self.unread(dep, unparked)
            self._unlinking.pop(unparked, None)
            for dep in unparked.deps:
                dep.read_by(unparked)
            todo.extend(unparked.deps)

    def has_unused(self, count: int) -> bool:
        """Return whether there are at least `count` nodes without readers and watchers and inputs of them. Nodes that
        only they read are not counted."""
        for node in itertools.chain(self._orphans, self._parked):
            count -= 1 + len(node.deps)
            if count <= 0:
                return True
        return False

    def collect(self) -> int:
        """Free all nodes that no watched node depends on, and return their number."""
        before = len(self)
        self.collect_some(math.inf)
        return before - len(self)

    def collect_some(self, most: float) -> bool:
        """Free nodes that no watched node depends on, in at most `most` steps. Return whether more remain.

        A node is freed before its inputs. A node that still exists may be read between two calls, and then verifies its
        inputs. Cycles are freed in the last step.
        """
        steps = self._park_orphans(most)
        while self._parked and steps > 0:
            node, _ = self._parked.popitem(last=False)
            nodes = self._nodes[node.fn]
            del nodes[node.args]
            if not nodes:
                nodes.clear()  # an empty dict keeps the memory of its former items
            steps -= 1
        if self._orphans or self._parked or self._unlinking:
            return True
        self._parked.clear()
        if self._cyclic:
            self._free_cycles()
        return False

    def _free_cycles(self) -> None:
        """Free unreachable cycles of nodes. This is needed only after a derivation has read its own value."""
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
        """Return the node of a derived value, or None if it does not exist. Nothing is created or computed."""
        return self._nodes[fn].get(args)

    def live_nodes(self) -> Iterator[Node]:
        """Yield every live node, in no particular order."""
        return (node for nodes in self._nodes.values() for node in nodes.values())

    def counts(self) -> Iterator[tuple[Derivation[..., Any], int]]:
        """Yield each derivation that has live nodes, with the number of these nodes."""
        return ((fn, len(nodes)) for fn, nodes in self._nodes.items() if nodes)

    def count_inputs(self) -> int:
        """Return the number of table rows and buckets that live nodes read."""
        return sum(count for fn, count in self.counts() if fn.is_input)

    def nodes_of(self, fn: Derivation[..., Any]) -> Iterator[Node]:
        """Yield the live nodes of a derivation, oldest first."""
        return iter(self._nodes[fn].values())

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))


def _differ(old: Any, new: Any) -> bool:
    """Return whether two values differ. Dicts in a different order differ, because messages are built in that order."""
    return bool(new != old) or (isinstance(new, dict) and list(new) != list(old))
