"""The problems that there are now, by where they come from, for logs and pages."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pilot.lib.log import scope
from pilot.lib.text import cut, one_line
from pilot.model.problem import ObjectRef, Problem, Severity

_log = scope("config")
TOLD = 100
"""New problems of a document that are told one by one: a file of thousands would hold up the logs of everything else."""
_SHOWN = 2_000
"""Characters of a problem that a line of the log has."""
Place = tuple[str, str]
"""Name of a source, and the document in it."""


def log_problem(problem: Problem) -> None:
    (_log.error if problem.severity is Severity.ERROR else _log.warning)("%s", cut(one_line(str(problem)), _SHOWN))


class ProblemStore:
    """Problems by the document that has them. `on_new` is told of those that were not there before, at most `TOLD` at once."""

    def __init__(self, on_new: Callable[[Problem], None] = log_problem) -> None:
        self._by_place: dict[Place, tuple[Problem, ...]] = {}
        self._on_new = on_new

    def replace(self, place: Place, problems: Iterable[Problem]) -> None:
        """Set what a document has from now on."""
        found = tuple(problems)
        old = {problem for problem in self._by_place.get(place, ())}  # noqa: C416 (one call for all would hold up other threads)
        if found:
            self._by_place[place] = found
        else:
            self._by_place.pop(place, None)
        new = [problem for problem in found if problem not in old]
        for problem in new[:TOLD]:
            self._on_new(problem)
        if len(new) > TOLD:
            _log.warning("%d more problems are new in %s: /debug/problemz has them all", len(new) - TOLD, one_line(place[1] or place[0]))

    def of(self, subject: ObjectRef) -> list[Problem]:
        """Those of one object."""
        return [problem for problem in self if problem.object == subject]

    def __iter__(self) -> Iterator[Problem]:
        """All, by source and document."""
        for place in sorted(self._by_place):
            yield from self._by_place.get(place, ())

    def __len__(self) -> int:
        return sum(map(len, self._by_place.values()))
