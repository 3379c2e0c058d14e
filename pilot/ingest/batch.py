"""Debounces edits of the tables. Several changes become one commit, and the last edit of a row wins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.derive import Change, Node, Table
from pilot.ingest.namespace_filter import Edit, NamespaceFilter
from pilot.ingest.portions import Portions
from pilot.lib.duration import Duration
from pilot.lib.time_slice import SLICE_SECONDS
from pilot.mesh.tables.database import Mesh

Event = Literal["add", "update", "delete"]
Edits = dict[tuple[str, Hashable], Any]
ADMITTED = 100
"""Number of edits that are filtered by namespace at a time."""
ENDPOINTS = frozenset({ENDPOINT_SLICE.table_name, POD.table_name})
ENDPOINTS_WAIT = 0.25
"""Maximum debounce time of endpoint changes, in seconds.

In a large mesh, endpoints change all the time. Clients need the changes soon, and committing a few of them is cheap.
"""
MAX_FORMER, MAX_FORMER_ENDPOINTS = 100, 20
"""Maximum numbers of former rows of a commit: of all rows except endpoints, and of endpoints."""
TURN = 0.001
"""Pause between two slices, in seconds. Other tasks can run during the pause."""
PORTION_CHECK = 0.02
"""Seconds between checks whether the next portion of large changes is due."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The timer functions of an asyncio event loop, which tests replace. `time` is monotonic, in seconds."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer: ...


class Commit(NamedTuple):
    """The result of committing a batch.

    `hit` contains the affected watched nodes. `arrivals` is the number of `put` calls, or 0 if the edits were left by
    earlier commits. `first` and `last` are the times of the first and the last call, according to the batch's clock.
    `events` counts the rows that were added, updated or deleted in each table. `took` is the duration in seconds.
    `runs` is the number of derivations that ran. `former` has the former rows of the first `MAX_FORMER` rows that were
    updated, and of the first `MAX_FORMER_ENDPOINTS` endpoints.
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

    A commit that takes longer than a time slice is interrupted, so that other tasks run in between. `on_commit` is
    called once, after the last slice.

    Large changes of a namespace are committed in portions. The next one waits until `are_processed` returns True.
    """

    def __init__(
        self,
        mesh: Mesh,
        clock: Clock,
        quiet: Duration,
        longest: Duration,
        on_commit: Callable[[Commit], None],
        endpoints_wait: bool = True,
        are_processed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._mesh, self._clock, self._on_commit = mesh, clock, on_commit
        self._namespaces, self._portions = NamespaceFilter(mesh), Portions(clock.time, are_processed)
        self._quiet, self._longest, self._endpoints_wait = quiet.seconds, longest.seconds, endpoints_wait
        self._edits: Edits = {}
        self._arrivals = 0
        self._first = self._last = 0.0
        self._first_of_endpoints: float | None = None
        self._first_of_left: float | None = None
        self._endpoints_alone = True
        self._timer: Timer | None = None
        self._committing: _Committing | None = None

    def put(self, edits: Iterable[Edit]) -> None:
        """Add edits. An empty iterable does not restart the debounce timer."""
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
        if not self._arrivals:
            self._first = self._last
        self._arrivals += 1
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
        if self._committing is None and self._rest() <= 1e-6:
            self._begin(self._portions)
        is_interrupted = self._committing is not None and self._go_on(self._committing)
        if is_interrupted or self._edits:
            self._timer = self._clock.call_later(TURN if is_interrupted else max(self._rest(), 0.0), self._ripe)

    def _rest(self) -> float:
        """Return the number of seconds until the pending edits are due."""
        if not self._arrivals:  # earlier commits have left all of them
            return 0.0 if self._portions.is_due() else PORTION_CHECK
        if self._endpoints_alone and not self._endpoints_wait:
            return 0.0
        due = min(self._last + self._quiet, self._first + self._longest)
        if self._first_of_endpoints is not None:
            due = min(due, self._first_of_endpoints + max(ENDPOINTS_WAIT, self._quiet))
        return due - self._clock.time()

    def flush(self) -> None:
        """Commit all pending edits immediately, without interruption and not in portions."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._committing is not None:
            self._go_on(self._committing, math.inf)
        if self._edits:
            self._go_on(self._begin(None), math.inf)

    def _begin(self, portions: Portions | None) -> _Committing:
        """Start the commit of the pending edits, or of the next portion of them. Later edits belong to the next
        commit."""
        is_next = portions is None or portions.begin()
        first = self._first_of_left if is_next and self._first_of_left is not None else self._first
        self._committing = _Committing(
            self._mesh, self._namespaces, portions, self._edits, self._arrivals, first, self._last
        )
        self._edits, self._arrivals, self._first_of_endpoints, self._endpoints_alone = {}, 0, None, True
        return self._committing

    def _go_on(self, committing: _Committing, seconds: float = SLICE_SECONDS) -> bool:
        """Continue a commit for a time slice. Return whether a part of it remains."""
        started, runs = self._clock.time(), self._mesh.runs
        if seconds == math.inf:
            is_complete = committing.go_on()
        else:
            with self._mesh.pausing(lambda: self._clock.time() - started >= seconds):
                is_complete = committing.go_on()
        committing.took += self._clock.time() - started
        committing.runs += self._mesh.runs - runs
        if not is_complete:
            return True
        self._committing = None
        if not committing.left:
            self._first_of_left = None
        elif self._first_of_left is None:
            self._first_of_left = committing.first
        self._edits = {**committing.left, **self._edits}
        if committing.edits:
            self._on_commit(committing.commit())
        return False

    def __len__(self) -> int:
        """Return the number of edits that have not been committed yet."""
        committing = self._committing
        return len(self._edits) + (len(committing.rest) + len(committing.left) if committing is not None else 0)


class _Committing:
    """A batch that is being committed.

    `rest` contains the edits that have not been admitted yet, in reverse order. `left` contains those that are left to
    later commits.
    """

    def __init__(
        self,
        mesh: Mesh,
        namespaces: NamespaceFilter,
        portions: Portions | None,
        edits: Edits,
        arrivals: int,
        first: float,
        last: float,
    ) -> None:
        self._mesh, self._namespaces, self._portions = mesh, namespaces, portions
        self.rest = list(edits.items()) if portions is None else portions.order(edits)
        self.rest.reverse()
        self.left: Edits = {}
        self.hit: list[Node] = []
        self.edits: list[Edit] = []
        self.events: Counter[tuple[str, Event]] = Counter()
        self.former: dict[tuple[str, Hashable], Any] = {}
        self._room = {False: MAX_FORMER, True: MAX_FORMER_ENDPOINTS}
        self.took, self.runs = 0.0, 0
        self.first, self._arrivals, self._last = first, arrivals, last
        self._steps = mesh.commit_in_steps(self._changes())

    def go_on(self) -> bool:
        """Continue until the commit must pause. Return whether it is complete."""
        try:
            next(self._steps)
        except StopIteration as stop:
            self.hit = stop.value
            return True
        return False

    def _changes(self) -> Iterator[Change]:
        """Yield the admitted edits, each before it is applied, and record them."""
        while self.rest:
            part = self.rest[: -ADMITTED - 1 : -1]
            del self.rest[-ADMITTED:]
            for name, key, row in self._namespaces.admit(self._take(part)):
                table = self._mesh.tables[name]
                self.edits.append((name, key, row))
                self.events[name, _event(table, key, row)] += 1
                self._remember(table, key, row)
                yield table, key, row

    def _take(self, part: Iterable[tuple[tuple[str, Hashable], Any]]) -> Iterator[Edit]:
        """Yield the edits that belong to this commit. Endpoints are never left."""
        for (table, key), row in part:
            if self._portions is None or table in ENDPOINTS or self._portions.take(table, key, row):
                yield table, key, row
            else:
                self.left[table, key] = row

    def _remember(self, table: Table[Any, Any], key: Hashable, row: Any) -> None:
        """Record the former row of a change that is about to be applied."""
        is_endpoint = table.name in ENDPOINTS
        if self._room[is_endpoint] and row is not None:
            former = table.peek(key)
            if former is not None:
                self._room[is_endpoint] -= 1
                self.former.setdefault((table.name, key), former)

    def commit(self) -> Commit:
        """Return the result of the commit."""
        return Commit(
            self.hit,
            self.edits,
            self._arrivals,
            self.first,
            self._last,
            self.events,
            self.took,
            self.runs,
            self.former,
        )


def _event(table: Table[Any, Any], key: Hashable, row: Any) -> Event:
    """Return the event that results from committing a row."""
    return "delete" if row is None else "add" if table.peek(key) is None else "update"
