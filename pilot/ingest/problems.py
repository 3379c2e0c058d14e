"""Stores the current problems for the log and the debug pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.lib.logging.log import scope
from pilot.lib.text import cut, one_line

_log = scope("config")
MAX_REPORTED = 100
"""Maximum number of new problems of a document that are logged one by one, so that one file does not flood the log."""
_SHOWN = 2_000
"""Maximum length of a logged problem, in characters."""
Place = tuple[str, str]
"""The names of a source and a document, or of a check and its subject."""


def log_problem(problem: Problem) -> None:
    log = {Severity.ERROR: _log.error, Severity.WARNING: _log.warning, Severity.INFO: _log.info}[problem.severity]
    log("%s", cut(one_line(str(problem)), _SHOWN))


def _ignore(code: str, severity: Severity, count: int) -> None:
    """Ignore the number of problems."""


class ProblemStore:
    """All current problems of files, single objects and checks, keyed by place.

    `on_new` is called with each problem that no other place has yet, at most `MAX_REPORTED` times per call of
    `replace`. `on_count` is called with a code, a severity and the number of problems that have both, whenever this
    number changes. `revision` increases with every change.
    """

    def __init__(
        self, on_new: Callable[[Problem], None] = log_problem, on_count: Callable[[str, Severity, int], None] = _ignore
    ) -> None:
        self._by_place: dict[Place, tuple[Problem, ...]] = {}
        self._holders: dict[Problem, int] = {}  # the number of places that have the problem
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._on_new, self._on_count = on_new, on_count
        self.revision = 0

    def replace(self, place: Place, problems: Iterable[Problem]) -> None:
        """Replace the problems of a place."""
        # Not dict.fromkeys(): one long call would block other threads.
        current = tuple({problem: None for problem in problems})  # noqa: C420
        old = self._by_place.get(place, ())
        self.revision += current != old
        if current:
            self._by_place[place] = current
        else:
            self._by_place.pop(place, None)
        new = [problem for problem in current if self._hold(problem)]
        gone = [problem for problem in old if self._release(problem)]
        self._count(new, gone)
        for problem in new[:MAX_REPORTED]:
            self._on_new(problem)
        if len(new) > MAX_REPORTED:
            _log.warning(
                "%d more new problems in %s; see /debug/problemz for all of them",
                len(new) - MAX_REPORTED,
                one_line(place[1] or place[0]),
            )

    def _hold(self, problem: Problem) -> bool:
        """Increment the number of places that have a problem. Return whether this is the first place."""
        count = self._holders.get(problem, 0)
        self._holders[problem] = count + 1
        return not count

    def _release(self, problem: Problem) -> bool:
        """Decrement the number of places that have a problem. Return whether this was the last place."""
        count = self._holders[problem] - 1
        if count:
            self._holders[problem] = count
        else:
            del self._holders[problem]
        return not count

    def _count(self, new: Iterable[Problem], gone: Iterable[Problem]) -> None:
        changed: Counter[tuple[str, Severity]] = Counter()
        for problems, step in ((new, 1), (gone, -1)):
            for problem in problems:
                changed[problem.code, problem.severity] += step
        for kind, more in changed.items():
            if more:
                self._counts[kind] += more
                self._on_count(*kind, self._counts[kind])

    def of(self, subject: ObjectRef) -> list[Problem]:
        """Return the problems of one object."""
        return [problem for problem in self if problem.object == subject]

    def __iter__(self) -> Iterator[Problem]:
        """Yield each problem once, sorted by source and document. Problems may be replaced meanwhile."""
        seen = set[Problem]()
        for place in sorted(self._by_place):
            for problem in self._by_place.get(place, ()):
                if problem not in seen:
                    seen.add(problem)
                    yield problem

    def __len__(self) -> int:
        return len(self._holders)
