"""Who declares which object: of several sources the first by name has it, and the next takes over when it goes.

A source is a file, or whatever else gives documents as a whole. It remembers the last good version of each of its objects.
"""
from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

from pilot.ingest.batch import Edit
from pilot.ingest.decode import Decoded, Row
from pilot.ingest.problems import ProblemStore
from pilot.model.config.object import Object
from pilot.model.problem import Problem, Severity


class _Source:
    """What a source gave: its objects, its own problems, and the rows of it that another source has."""

    __slots__ = ("lost", "objects", "problems")

    def __init__(self) -> None:
        self.objects: dict[Row, Object[Any]] = {}
        self.problems: tuple[Problem, ...] = ()
        self.lost: dict[Row, Problem] = {}


class Ledger:
    """Turns what sources say into edits, and keeps the problems of each."""

    def __init__(self, problems: ProblemStore) -> None:
        self._problems = problems
        self._sources: dict[str, _Source] = {}
        self._claims: dict[Row, list[str]] = {}

    def replace(self, name: str, decoded: Iterable[Decoded]) -> list[Edit]:
        """What a source says from now on, as a whole. A refused object stays as it was, where it was."""
        source = self._sources.get(name) or self._sources.setdefault(name, _Source())
        old, new = source.objects, {}
        problems: list[Problem] = []
        for document in decoded:
            problems += document.problems
            for entry in document.entries:
                row = entry.table, entry.key
                if row in new:
                    problems.append(_duplicate(entry.object, name, name))
                else:
                    new[row] = entry.object
            for row in document.refused:
                if row in old:
                    new.setdefault(row, old[row])
        source.problems = tuple(problems)
        return self._change(name, source, new)

    def fail(self, name: str, problem: Problem) -> None:
        """A source cannot be read: its objects stay as they are."""
        source = self._sources.get(name) or self._sources.setdefault(name, _Source())
        source.problems = (problem,)
        self._report(name, source)

    def remove(self, name: str) -> list[Edit]:
        """A source is gone, with what it declared."""
        source = self._sources.get(name)
        if source is None:
            return []
        source.problems = ()
        edits = self._change(name, source, {})
        del self._sources[name]
        return edits

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def _change(self, name: str, source: _Source, new: dict[Row, Object[Any]]) -> list[Edit]:
        """Set the objects of a source; the edits of the rows whose winner changed with it."""
        old, source.objects = source.objects, new
        edits: list[Edit] = []
        for row in [*new, *(row for row in old if row not in new)]:
            before, after = old.get(row), new.get(row)
            claims = self._claims.setdefault(row, [])
            winner = claims[0] if claims else None
            was = before if winner == name else self._sources[winner].objects[row] if winner is not None else None
            if before is None:
                bisect.insort(claims, name)
            elif after is None:
                claims.remove(name)
            now = self._sources[claims[0]].objects[row] if claims else None
            if now != was:
                edits.append((*row, now))
            if not claims:
                del self._claims[row]
            if len(claims) > 1 or source.lost or (after is None and claims):
                self._settle(row, claims, source)
        self._report(name, source)
        return edits

    def _settle(self, row: Row, claims: list[str], changed: _Source) -> None:
        """Tell each claimant of a row but the first that it has lost it."""
        changed.lost.pop(row, None)
        for index, name in enumerate(claims):
            source = self._sources[name]
            lost = _duplicate(source.objects[row], name, claims[0]) if index else None
            if source.lost.get(row) == lost:
                continue
            if lost is None:
                source.lost.pop(row, None)
            else:
                source.lost[row] = lost
            if source is not changed:
                self._report(name, source)

    def _report(self, name: str, source: _Source) -> None:
        self._problems.replace(name, (*source.problems, *source.lost.values()))


def _duplicate(o: Object[Any], name: str, winner: str) -> Problem:
    message = "it is there twice: the first one counts" if name == winner else f"{winner} declares it too, and counts"
    return Problem(code="duplicate-object", object=o.ref, path="metadata.name", message=message, severity=Severity.WARNING, file=name)
