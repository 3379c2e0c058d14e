"""The problems that there are now, by where they come from, for logs and pages."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pilot.lib.log import scope
from pilot.model.problem import ObjectRef, Problem, Severity

_log = scope("config")


def log_problem(problem: Problem) -> None:
    (_log.error if problem.severity is Severity.ERROR else _log.warning)("%s", problem)


class ProblemStore:
    """Problems by source: a file, or the name of another one. `on_new` is told of each that was not there before."""

    def __init__(self, on_new: Callable[[Problem], None] = log_problem) -> None:
        self._by_source: dict[str, tuple[Problem, ...]] = {}
        self._on_new = on_new

    def replace(self, source: str, problems: Iterable[Problem]) -> None:
        """What a source has from now on."""
        found = tuple(problems)
        old = self._by_source.get(source, ())
        if found:
            self._by_source[source] = found
        elif old:
            del self._by_source[source]
        for problem in found:
            if problem not in old:
                self._on_new(problem)

    def of(self, subject: ObjectRef) -> list[Problem]:
        """Those of one object."""
        return [problem for problem in self if problem.object == subject]

    def __iter__(self) -> Iterator[Problem]:
        """All, by source."""
        for source in sorted(self._by_source):
            yield from self._by_source[source]

    def __len__(self) -> int:
        return sum(map(len, self._by_source.values()))
