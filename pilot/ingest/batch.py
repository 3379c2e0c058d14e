"""Many changes → few commits: edits gather until there is quiet, the last one of a row counts."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from pilot.derive import Node, Table
from pilot.ingest.discovery import Discovery, Edit
from pilot.lib.duration import Duration
from pilot.model.inputs import Mesh

Event = Literal["add", "update", "delete"]


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """What an asyncio event loop has, and a test can play. `time` is in seconds from anywhere."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer: ...


class Commit(NamedTuple):
    """What a batch came to: the watched nodes that it reached, its edits, how many times edits came in for it, and when the first
    and the last of them did, by the batch's clock; how many rows of a table it added, changed or deleted, and the seconds that the
    commit took."""

    hit: list[Node]
    edits: list[Edit]
    arrivals: int
    first: float
    last: float
    events: Mapping[tuple[str, Event], int]
    took: float


class Batch:
    """Commits after `quiet` without a new edit, but at most `longest` after the first one."""

    def __init__(self, mesh: Mesh, clock: Clock, quiet: Duration, longest: Duration, on_commit: Callable[[Commit], None]) -> None:
        self._mesh, self._clock, self._on_commit = mesh, clock, on_commit
        self._discovery = Discovery(mesh)
        self._quiet, self._longest = quiet.seconds, longest.seconds
        self._edits: dict[tuple[str, Hashable], Any] = {}
        self._arrivals = 0
        self._first = self._last = 0.0
        self._timer: Timer | None = None

    def put(self, edits: Iterable[Edit]) -> None:
        """Take edits. None at all is no event."""
        before = len(self._edits)
        empty = True
        for table, key, row in edits:
            self._edits[table, key] = row
            empty = False
        if empty:
            return
        self._last = self._clock.time()
        self._arrivals += 1
        if not before:
            self._first = self._last
        if self._timer is None:
            self._timer = self._clock.call_later(min(self._quiet, self._longest), self._ripe)

    def _ripe(self) -> None:
        """The timer rang: commit, or wait on for what came in since."""
        self._timer = None
        now = self._clock.time()
        rest = min(self._last + self._quiet, self._first + self._longest) - now
        if rest > 1e-6:
            self._timer = self._clock.call_later(rest, self._ripe)
        else:
            self.flush()

    def flush(self) -> None:
        """Commit what there is, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._edits:
            return
        edits = self._discovery.admit((table, key, row) for (table, key), row in self._edits.items())
        arrivals, self._edits, self._arrivals = self._arrivals, {}, 0
        if not edits:
            return
        changes = [(getattr(self._mesh, table), key, row) for table, key, row in edits]
        events = Counter((name, _event(table, key, row)) for (name, _, _), (table, key, row) in zip(edits, changes, strict=True))
        started = self._clock.time()
        hit = self._mesh.commit(changes)
        self._on_commit(Commit(hit, edits, arrivals, self._first, self._last, events, self._clock.time() - started))

    def __len__(self) -> int:
        """Edits that wait."""
        return len(self._edits)


def _event(table: Table[Any, Any], key: Hashable, row: Any) -> Event:
    return "delete" if row is None else "add" if table.peek(key) is None else "update"
