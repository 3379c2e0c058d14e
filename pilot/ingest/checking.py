"""Runs the analysis checks in the background, a few at a time, after commits that affect them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from pilot.derive import UNSET, Node, Paused
from pilot.ingest.batch import Clock, Timer
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import Duration
from pilot.lib.long_tuples import changed_items
from pilot.lib.time_slice import time_slice
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import Mesh

QUIET = Duration.of(1)
LONGEST = Duration.of(10)
SLICE = 50  # subjects checked before other tasks run, unless they take longer than a time slice


class _Kind:
    """A check and its subjects.

    `keys` is the node that lists the subjects, and `listed` are those that it listed last. `problems` maps each
    evaluated subject to the node with its problems.
    """

    __slots__ = ("check", "keys", "listed", "problems")

    def __init__(self, check: Check, keys: Node) -> None:
        self.check, self.keys = check, keys
        self.listed: tuple[Hashable, ...] = ()
        self.problems: dict[Hashable, Node] = {}


class Checking:
    """Evaluates the checks of every object, and reports the results to the problem store.

    Checks run once there has been no commit for `quiet`, but at most `longest` after the first commit that affects a
    check. Problems that exist only while a mesh is loading are therefore not reported.
    """

    def __init__(
        self,
        db: Mesh,
        clock: Clock,
        problems: ProblemStore,
        checks: Iterable[Check],
        quiet: Duration = QUIET,
        longest: Duration = LONGEST,
    ) -> None:
        self._db, self._clock, self._problems = db, clock, problems
        self._quiet, self._longest = quiet.seconds, longest.seconds
        self._kinds = {node: _Kind(check, node) for check in checks for node in (db.watch(check.keys),)}
        self._subjects: dict[Node, tuple[_Kind, Hashable]] = {}
        self._unlisted: dict[_Kind, None] = dict.fromkeys(self._kinds.values())
        self._due: dict[tuple[_Kind, Hashable], None] = {}
        self._paused: list[Node] = []
        self._first = self._last = 0.0
        self._timer: Timer | None = None

    def reached(self, nodes: Iterable[Node]) -> None:
        """Schedule the checks that a commit affects. `nodes` may include watched nodes of other components."""
        for node in nodes:
            if node in self._subjects:
                self._due[self._subjects[node]] = None
            elif node in self._kinds:
                self._unlisted[self._kinds[node]] = None
        self._last = self._clock.time()
        if self._timer is None and (self._due or self._unlisted):
            self._first = self._last
            self._timer = self._clock.call_later(self._quiet, self._ripe)

    def _ripe(self) -> None:
        """Run some checks, or wait until there are no commits. The timer calls this."""
        self._timer = None
        rest = min(self._last + self._quiet, self._first + self._longest) - self._clock.time()
        if rest <= 1e-6:
            self._check_some()
        if self._due or self._unlisted:
            self._timer = self._clock.call_later(max(rest, 0.0), self._ripe)

    def _check_some(self) -> None:
        """Run checks for one time slice. Continue an interrupted derivation first."""
        must_pause = time_slice()
        try:
            with self._db.pausing(must_pause):
                while self._paused:
                    self._db.refresh(self._paused[-1])
                    self._db.unwatch(self._paused.pop())
                for kind in tuple(self._unlisted):
                    if not self._list(kind, must_pause):
                        return
                    self._unlisted.pop(kind, None)
                for subject in tuple(self._due)[:SLICE]:
                    self._check(*subject)
                    self._due.pop(subject, None)
                    if must_pause():
                        return
        except Paused as paused:
            for node in reversed(paused.nodes):
                if node not in self._paused:
                    self._db.hold(node)
                    self._paused.append(node)

    def _list(self, kind: _Kind, must_pause: Callable[[], bool]) -> bool:
        """Refresh the list of a check's subjects, and drop subjects that no longer exist. Return whether all of them
        are dropped."""
        self._db.refresh(kind.keys)
        listed: tuple[Hashable, ...] = () if kind.keys.value is UNSET else kind.keys.value
        gone, new = changed_items(kind.listed, listed)
        for key in gone:
            self._due.pop((kind, key), None)
            node = kind.problems.pop(key, None)
            if node is None:
                continue
            del self._subjects[node]
            self._db.unwatch(node)
            self._problems.replace(kind.check.place(key), ())
            if must_pause():
                return False
        self._due.update(((kind, key), None) for key in new)
        kind.listed = listed
        return True

    def _check(self, kind: _Kind, key: Hashable) -> None:
        node = kind.problems.get(key)
        if node is None:
            node = kind.problems[key] = self._db.watch_later(kind.check.problems, key)
            self._subjects[node] = kind, key
        self._db.refresh(node)
        self._problems.replace(kind.check.place(key), () if node.value is UNSET else node.value)
