"""Makes few commits of many changes: edits gather until there is quiet, and the last one of a row counts."""

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
SLICES = (1_000, 4_000)
"""Edits of a slice, at first and at most."""
LONG = 0.15
"""Seconds of a slice after which the next is larger: most of them went into what every slice pays again."""
ENDPOINTS = frozenset({ENDPOINT_SLICE.table_name, POD.table_name})
ENDPOINTS_WAIT = 0.25
"""Seconds that changes of these tables wait at most for quiet: a large mesh always has some, and a caller needs to know who is there. They
cost what they reach, so that a commit of a few of them is cheap."""
TURN = 0.001
"""Seconds between two slices, so that everything that waits for the loop has its turn."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The part of an asyncio event loop that sets timers; a test has one of its own. `time` is in seconds from any moment."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer: ...


class Commit(NamedTuple):
    """Says what a batch did: the watched nodes that it reached, its edits, how many times edits came in for it, and when the first and the
    last of them did, by the batch's clock; how many rows of a table it added, changed or deleted, and the seconds that it took."""

    hit: list[Node]
    edits: list[Edit]
    arrivals: int
    first: float
    last: float
    events: Mapping[tuple[str, Event], int]
    took: float


class Batch:
    """Gathers edits, and commits them after `quiet` without a new one, but at most `longest` after the first one; where endpoints are among them
    `ENDPOINTS_WAIT` after the first of those, or `quiet` where that is longer. Without `endpoints_wait` those alone do not wait at all.

    Thousands of edits are committed in slices, between which whoever waits for the event loop has it. `on_commit` is told once, after the
    last of them, so that nobody is pushed what is between.
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
        """Takes edits. An empty iterable is no event."""
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
        """Returns the row that an edit which waits sets; None where none does."""
        return self._edits.get((table, key))

    def _ripe(self) -> None:
        """Called by the timer: goes on committing, begins to, or waits on for what came in since."""
        self._timer = None
        rest = self._rest()
        if self._committing is None and rest <= 1e-6:
            self._begin()
        if self._committing is not None and self._go_on(self._committing):
            rest = TURN
        if self._committing is not None or self._edits:
            self._timer = self._clock.call_later(max(rest, 0.0), self._ripe)

    def _rest(self) -> float:
        """Returns the seconds until the edits that wait are due."""
        if self._endpoints_alone and not self._endpoints_wait:
            return 0.0
        due = min(self._last + self._quiet, self._first + self._longest)
        if self._first_of_endpoints is not None:
            due = min(due, self._first_of_endpoints + max(ENDPOINTS_WAIT, self._quiet))
        return due - self._clock.time()

    def flush(self) -> None:
        """Commits all edits that wait, in one piece, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._committing is not None:
            self._go_on(self._committing)
        if self._edits:
            self._go_on(self._begin(), whole=True)

    def _begin(self) -> _Committing:
        """Returns the edits that wait as what is committed from now on; those that come later wait for the next commit."""
        edits = list(self._edits.items())
        self._committing = _Committing(edits, self._arrivals, self._first, self._last)
        self._edits, self._arrivals, self._first_of_endpoints, self._endpoints_alone = {}, 0, None, True
        return self._committing

    def _go_on(self, committing: _Committing, whole: bool = False) -> bool:
        """Commits a slice, or all that is left; returns whether more is left."""
        started = self._clock.time()
        part = committing.take(len(committing.rest) if whole else committing.size)
        edits = self._namespaces.admit((table, key, row) for (table, key), row in part)
        if edits:
            changes = [(self._mesh.tables[table], key, row) for table, key, row in edits]
            for name, (table, key, row) in zip((name for name, _, _ in edits), changes, strict=True):
                committing.events[name, _event(table, key, row)] += 1
            committing.hit.update(dict.fromkeys(self._mesh.commit(changes)))
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
        """Returns the number of edits that wait."""
        return len(self._edits) + (len(self._committing.rest) if self._committing is not None else 0)


class _Committing:
    """A batch on its way into the tables. `rest`: the edits that are not there yet, the next one last."""

    def __init__(self, edits: list[tuple[tuple[str, Hashable], Any]], arrivals: int, first: float, last: float) -> None:
        self.rest = edits
        self.rest.reverse()
        self.size = SLICES[0]
        self.hit: dict[Node, None] = {}
        self.edits: list[Edit] = []
        self.events: Counter[tuple[str, Event]] = Counter()
        self.took = 0.0
        self._arrivals, self._first, self._last = arrivals, first, last

    def take(self, count: int) -> list[tuple[tuple[str, Hashable], Any]]:
        """Returns the next edits, in order, and takes them away."""
        part = self.rest[-count:]
        del self.rest[-count:]
        part.reverse()
        return part

    def commit(self) -> Commit:
        """Returns what was done."""
        return Commit(list(self.hit), self.edits, self._arrivals, self._first, self._last, self.events, self.took)


def _event(table: Table[Any, Any], key: Hashable, row: Any) -> Event:
    """Returns what a row that is committed next is to its table."""
    return "delete" if row is None else "add" if table.peek(key) is None else "update"
