"""Debounces edits of the tables. Several changes become one commit, and the last edit of a row wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.derive import Node, Table
from pilot.ingest.namespace_filter import Edit, NamespaceFilter
from pilot.lib.duration import Duration
from pilot.mesh.tables.database import Mesh

Event = Literal["add", "update", "delete"]
Edits = dict[tuple[str, Hashable], Any]
SLICES = (200, 4_000)
"""The initial and the maximum number of edits in a slice."""
LONG = 0.15
"""Threshold for the duration of a slice in seconds.

If a slice takes longer, the next one is larger, because most of the time is a fixed cost per slice.
"""
ENDPOINTS = frozenset({ENDPOINT_SLICE.table_name, POD.table_name})
ENDPOINTS_WAIT = 0.25
"""Maximum debounce time of endpoint changes, in seconds.

In a large mesh, endpoints change all the time. Clients need the changes soon, and committing a few of them is cheap.
"""
MAX_FORMER, MAX_FORMER_ENDPOINTS = 100, 20
"""Maximum numbers of former rows of a commit: of all rows except endpoints, and of endpoints."""
TURN = 0.001
"""Pause between two slices, in seconds. Other tasks can run during the pause."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The timer functions of an asyncio event loop, which tests replace. `time` is monotonic, in seconds."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer: ...


class Commit(NamedTuple):
    """The result of committing a batch.

    `hit` contains the affected watched nodes, and `arrivals` is the number of `put` calls. `first` and `last` are the
    times of the first and the last call, according to the batch's clock. `events` counts the rows that were added,
    updated or deleted in each table. `took` is the duration in seconds. `runs` is the number of derivations that ran.
    `former` has the former rows of the first `MAX_FORMER` rows that were updated, and of the first
    `MAX_FORMER_ENDPOINTS` endpoints.
    """

    hit: list[Node]
    edits: list[Edit]
    arrivals: int
    first: float
    last: float
    events: Mapping[tuple[str, Event], int]
    took: float
    runs: int = 0
    former: Mapping[tuple[str, Hashable], Any] = {}


class Batch:
    """Collects edits, and commits them once no edit has arrived for `quiet`, but at most `longest` after the first
    edit.

    After the first edit of endpoints, a batch waits at most for the longer of `ENDPOINTS_WAIT` and `quiet`. If
    `endpoints_wait` is false, a batch that contains only endpoints is committed immediately.

    Thousands of edits are committed in slices, and other tasks run between two slices. `on_commit` is called once,
    after the last slice, so that no intermediate state is pushed.
    """

    def __init__(
        self,
        mesh: Mesh,
        clock: Clock,
        quiet: Duration,
        longest: Duration,
        on_commit: Callable[[Commit], None],
        endpoints_wait: bool = True,
    ) -> None:
        self._mesh, self._clock, self._on_commit = mesh, clock, on_commit
        self._namespaces = NamespaceFilter(mesh)
        self._quiet, self._longest, self._endpoints_wait = quiet.seconds, longest.seconds, endpoints_wait
        self._edits: Edits = {}
        self._arrivals = 0
        self._first = self._last = 0.0
        self._first_of_endpoints: float | None = None
        self._endpoints_alone = True
        self._timer: Timer | None = None
        self._committing: _Committing | None = None

    def put(self, edits: Iterable[Edit]) -> None:
        """Add edits. An empty iterable does not restart the debounce timer."""
        before = len(self._edits)
        empty = True
        endpoints = False
        for table, key, row in edits:
            self._edits[table, key] = row
            empty = False
            if table in ENDPOINTS:
                endpoints = True
            else:
                self._endpoints_alone = False
        if empty:
            return
        self._last = self._clock.time()
        self._arrivals += 1
        if not before:
            self._first = self._last
        if endpoints and self._first_of_endpoints is None:
            self._first_of_endpoints = self._last
        if self._timer is None:
            at_once = self._endpoints_alone and not self._endpoints_wait
            self._timer = self._clock.call_later(0.0 if at_once else min(self._quiet, self._longest), self._ripe)

    def waiting(self, table: str, key: Hashable) -> Any:
        """Return the new row of a pending edit, or None if there is no such edit."""
        return self._edits.get((table, key))

    def is_committed(self, table: str, key: Hashable) -> bool:
        """Return whether all edits of a row have been committed and reported."""
        return self._committing is None and (table, key) not in self._edits

    def _ripe(self) -> None:
        """Start or continue a commit, or wait for more edits. The timer calls this."""
        self._timer = None
        rest = self._rest()
        if self._committing is None and rest <= 1e-6:
            self._begin()
        if self._committing is not None and self._go_on(self._committing):
            rest = TURN
        if self._committing is not None or self._edits:
            self._timer = self._clock.call_later(max(rest, 0.0), self._ripe)

    def _rest(self) -> float:
        """Return the number of seconds until the pending edits are due."""
        if self._endpoints_alone and not self._endpoints_wait:
            return 0.0
        due = min(self._last + self._quiet, self._first + self._longest)
        if self._first_of_endpoints is not None:
            due = min(due, self._first_of_endpoints + max(ENDPOINTS_WAIT, self._quiet))
        return due - self._clock.time()

    def flush(self) -> None:
        """Commit all pending edits immediately, in one slice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._committing is not None:
            self._go_on(self._committing)
        if self._edits:
            self._go_on(self._begin(), whole=True)

    def _begin(self) -> _Committing:
        """Start the commit of the pending edits. Later edits belong to the next commit."""
        edits = list(self._edits.items())
        self._committing = _Committing(edits, self._arrivals, self._first, self._last)
        self._edits, self._arrivals, self._first_of_endpoints, self._endpoints_alone = {}, 0, None, True
        return self._committing

    def _go_on(self, committing: _Committing, whole: bool = False) -> bool:
        """Commit one slice or, if `whole` is true, all remaining edits. Return whether edits remain."""
        started = self._clock.time()
        part = committing.take(len(committing.rest) if whole else committing.size)
        edits = self._namespaces.admit((table, key, row) for (table, key), row in part)
        if edits:
            changes = [(self._mesh.tables[table], key, row) for table, key, row in edits]
            for name, (table, key, row) in zip((name for name, _, _ in edits), changes, strict=True):
                committing.events[name, _event(table, key, row)] += 1
            committing.remember(changes)
            runs = self._mesh.runs
            committing.hit.update(dict.fromkeys(self._mesh.commit(changes)))
            committing.runs += self._mesh.runs - runs
            committing.edits += edits
        took = self._clock.time() - started
        committing.took += took
        if took > LONG and committing.size < SLICES[1]:
            committing.size = min(2 * committing.size, SLICES[1])
        if committing.rest:
            return True
        self._committing = None
        if committing.edits:
            self._on_commit(committing.commit())
        return False

    def __len__(self) -> int:
        """Return the number of edits that have not been committed yet."""
        return len(self._edits) + (len(self._committing.rest) if self._committing is not None else 0)


class _Committing:
    """A batch that is being committed. `rest` contains the remaining edits in reverse order."""

    def __init__(self, edits: list[tuple[tuple[str, Hashable], Any]], arrivals: int, first: float, last: float) -> None:
        self.rest = edits
        self.rest.reverse()
        self.size = SLICES[0]
        self.hit: dict[Node, None] = {}
        self.edits: list[Edit] = []
        self.events: Counter[tuple[str, Event]] = Counter()
        self.former: dict[tuple[str, Hashable], Any] = {}
        self._room = {False: MAX_FORMER, True: MAX_FORMER_ENDPOINTS}
        self.took, self.runs = 0.0, 0
        self._arrivals, self._first, self._last = arrivals, first, last

    def take(self, count: int) -> list[tuple[tuple[str, Hashable], Any]]:
        """Remove and return the next edits, in order."""
        part = self.rest[-count:]
        del self.rest[-count:]
        part.reverse()
        return part

    def remember(self, changes: Iterable[tuple[Table[Any, Any], Hashable, Any]]) -> None:
        """Record the former rows of changes that are about to be committed."""
        for table, key, row in changes:
            is_endpoint = table.name in ENDPOINTS
            if self._room[is_endpoint] and row is not None and (former := table.peek(key)) is not None:
                self._room[is_endpoint] -= 1
                self.former.setdefault((table.name, key), former)

    def commit(self) -> Commit:
        """Return the result of the commit."""
        return Commit(
            list(self.hit),
            self.edits,
            self._arrivals,
            self._first,
            self._last,
            self.events,
            self.took,
            self.runs,
            self.former,
        )


def _event(table: Table[Any, Any], key: Hashable, row: Any) -> Event:
    """Return the event that results from committing a row."""
    return "delete" if row is None else "add" if table.peek(key) is None else "update"
