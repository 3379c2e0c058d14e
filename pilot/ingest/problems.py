"""The problems that there are now, by where they come from, for logs and pages."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pilot.lib.log import scope
from pilot.model.problem import ObjectRef, Problem, Severity

_log = scope("config")
Place = tuple[str, str]
"""Name of a source, and the document in it."""


def log_problem(problem: Problem) -> None:
    (_log.error if problem.severity is Severity.ERROR else _log.warning)("%s", problem)


class ProblemStore:
    """Problems by the document that has them. `on_new` is told of each that was not there before."""

    def __init__(self, on_new: Callable[[Problem], None] = log_problem) -> None:
        self._by_place: dict[Place, tuple[Problem, ...]] = {}
        self._on_new = on_new

    def replace(self, place: Place, problems: Iterable[Problem]) -> None:
        """Set what a document has from now on."""
        found = tuple(problems)
        old = frozenset(self._by_place.get(place, ()))
        if found:
            self._by_place[place] = found
        else:
            self._by_place.pop(place, None)
        for problem in found:
            if problem not in old:
                self._on_new(problem)

    def of(self, subject: ObjectRef) -> list[Problem]:
        """Those of one object."""
        return [problem for problem in self if problem.object == subject]

    def __iter__(self) -> Iterator[Problem]:
        """All, by source and document."""
        for place in sorted(self._by_place):
            yield from self._by_place.get(place, ())

    def __len__(self) -> int:
        return sum(map(len, self._by_place.values()))
