"""The problems that there are now, by where they come from, for logs and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.lib.log import scope
from pilot.lib.text import cut, one_line

_log = scope("config")
TOLD = 100
"""New problems of a document that are told one by one: a file of thousands would hold up the logs of everything else."""
_SHOWN = 2_000
"""Characters of a problem that a line of the log has."""
Place = tuple[str, str]
"""Name of a source and the document in it, or of a check and the object that it looked at."""


def log_problem(problem: Problem) -> None:
    log = {Severity.ERROR: _log.error, Severity.WARNING: _log.warning, Severity.NOTICE: _log.info}[problem.severity]
    log("%s", cut(one_line(str(problem)), _SHOWN))


def _ignore(code: str, severity: Severity, count: int) -> None:
    """Does nothing: these counts nobody wants."""


class ProblemStore:
    """All problems that there are: of files, of objects alone, and between objects.

    They come from places: a document of a source, or an object that was looked at. `on_new` is told of those that no place had before,
    at most `TOLD` at once; `on_count` of how many there are of a code and severity, whenever that changed. `revision` is another number after each
    change.
    """

    def __init__(
        self, on_new: Callable[[Problem], None] = log_problem, on_count: Callable[[str, Severity, int], None] = _ignore
    ) -> None:
        self._by_place: dict[Place, tuple[Problem, ...]] = {}
        self._holders: dict[Problem, int] = {}  # by how many places
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._on_new, self._on_count = on_new, on_count
        self.revision = 0

    def replace(self, place: Place, problems: Iterable[Problem]) -> None:
        """Sets what a place has from now on. It takes a step a problem, for one call for all would hold up other threads."""
        found = tuple({problem: None for problem in problems})  # noqa: C420
        old = self._by_place.get(place, ())
        self.revision += found != old
        if found:
            self._by_place[place] = found
        else:
            self._by_place.pop(place, None)
        new = [problem for problem in found if self._hold(problem)]
        gone = [problem for problem in old if self._release(problem)]
        self._count(new, gone)
        for problem in new[:TOLD]:
            self._on_new(problem)
        if len(new) > TOLD:
            _log.warning(
                "%d more problems are new in %s: /debug/problemz has them all",
                len(new) - TOLD,
                one_line(place[1] or place[0]),
            )

    def _hold(self, problem: Problem) -> bool:
        """One more place has the problem; returns whether none had it before."""
        held = self._holders.get(problem, 0)
        self._holders[problem] = held + 1
        return not held

    def _release(self, problem: Problem) -> bool:
        """One place less has the problem; returns whether none has it any more."""
        held = self._holders[problem] - 1
        if held:
            self._holders[problem] = held
        else:
            del self._holders[problem]
        return not held

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
        """Returns the problems of one object."""
        return [problem for problem in self if problem.object == subject]

    def __iter__(self) -> Iterator[Problem]:
        """Yields all problems, each once, by source and document."""
        return iter(
            dict.fromkeys(problem for place in sorted(self._by_place) for problem in self._by_place.get(place, ()))
        )

    def __len__(self) -> int:
        return len(self._holders)
