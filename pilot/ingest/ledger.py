"""Who declares which object: of several documents the first by rank has it, and the next takes over when it goes.

There is one ledger for all sources. Each source says what it has through its `SourceLedger`, document by document; a document is
a file, or a single object of a source that gives those. A document keeps the last good version of each of its objects.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pilot.config.object import Object
from pilot.config.problem import Problem, Severity
from pilot.ingest.decode import Decoded, Row
from pilot.ingest.folder import shown
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore


class DocumentKey(NamedTuple):
    """Names a document. They sort by which counts first: the source of the lower rank, then by name of source and document.

    `document` is the path of a file, or the row of a single object.
    """

    rank: int
    source: str
    document: str | Row

    def __str__(self) -> str:
        return shown(self.document) if isinstance(self.document, str) else self.source


class _Document:
    """Holds what a document declares: its objects, its own problems, and the rows of it that another document has."""

    __slots__ = ("lost", "objects", "problems")

    def __init__(self) -> None:
        self.objects: dict[Row, Object[Any]] = {}
        self.problems: tuple[Problem, ...] = ()
        self.lost: dict[Row, Problem] = {}


class Ledger:
    """Turns what documents declare into edits, and keeps the problems of each.

    Who speaks to it from another thread, or awaits between a change and handing on its edits, holds `turn` for that time: edits that
    overtake each other would leave a loser in the table.
    """

    def __init__(self, problems: ProblemStore) -> None:
        self._problems = problems
        self.turn = asyncio.Lock()
        self._documents: dict[DocumentKey, _Document] = {}
        self._claims: dict[Row, list[DocumentKey]] = {}

    def source(self, rank: int, name: str) -> SourceLedger:
        """Returns the part of a source. Of two sources that declare the same object the one with the lower rank has it."""
        return SourceLedger(self, rank, name)

    def replace(self, key: DocumentKey, decoded: Iterable[Decoded]) -> list[Edit]:
        """Takes what a document declares from now on, as a whole. A refused object stays as it was, where it was."""
        document = self._documents.get(key) or self._documents.setdefault(key, _Document())
        old, new = document.objects, {}
        problems: list[Problem] = []
        for part in decoded:
            problems += part.problems
            for entry in part.entries:
                row = entry.table, entry.key
                if row in new:
                    problems.append(_duplicate(entry.object, key, key))
                else:
                    new[row] = entry.object
            for row in part.refused:
                if row in old:
                    new.setdefault(row, old[row])
        document.problems = tuple(problems)
        return self._change(key, document, new)

    def objects(self, key: DocumentKey) -> Mapping[Row, Object[Any]]:
        """Returns what a document declares now, the last good versions of what is refused among it."""
        document = self._documents.get(key)
        return document.objects if document is not None else {}

    def fail(self, key: DocumentKey, *problems: Problem) -> None:
        """Notes that a document cannot be read: its objects stay as they are."""
        document = self._documents.get(key) or self._documents.setdefault(key, _Document())
        document.problems = problems
        self._report(key, document)

    def remove(self, key: DocumentKey) -> list[Edit]:
        """Forgets a document, with what it declared."""
        document = self._documents.get(key)
        if document is None:
            return []
        document.problems = ()
        edits = self._change(key, document, {})
        del self._documents[key]
        return edits

    def _change(self, key: DocumentKey, document: _Document, new: dict[Row, Object[Any]]) -> list[Edit]:
        """Sets the objects of a document; returns the edits of the rows whose winner changed with it."""
        old, document.objects = document.objects, new
        edits: list[Edit] = []
        for row in [*new, *(row for row in old if row not in new)]:
            before, after = old.get(row), new.get(row)
            claims = self._claims.setdefault(row, [])
            winner = claims[0] if claims else None
            was = before if winner == key else self._documents[winner].objects[row] if winner is not None else None
            if before is None:
                bisect.insort(claims, key)
            elif after is None:
                claims.remove(key)
            now = self._documents[claims[0]].objects[row] if claims else None
            if now != was:
                edits.append((*row, now))
            if not claims:
                del self._claims[row]
            if len(claims) > 1 or document.lost or (after is None and claims):
                self._settle(row, claims, document)
        self._report(key, document)
        return edits

    def _settle(self, row: Row, claims: list[DocumentKey], changed: _Document) -> None:
        """Tells each claimant of a row but the first that it has lost it."""
        changed.lost.pop(row, None)
        for index, key in enumerate(claims):
            document = self._documents[key]
            lost = _duplicate(document.objects[row], key, claims[0]) if index else None
            if document.lost.get(row) == lost:
                continue
            if lost is None:
                document.lost.pop(row, None)
            else:
                document.lost[row] = lost
            if document is not changed:
                self._report(key, document)

    def _report(self, key: DocumentKey, document: _Document) -> None:
        where = key.document if isinstance(key.document, str) else "/".join((key.document[0], *key.document[1]))
        self._problems.replace((key.source, where), (*document.problems, *document.lost.values()))


class SourceLedger:
    """Holds what one source says. It gives whole documents by name (`replace`, `fail`, `remove`), or single objects (`put`, `drop`, `retain`)."""

    def __init__(self, ledger: Ledger, rank: int, name: str) -> None:
        self._ledger, self._rank, self._name = ledger, rank, name
        self._rows: set[Row] = set()
        self.turn = ledger.turn

    def replace(self, document: str, decoded: Iterable[Decoded]) -> list[Edit]:
        """Takes what a document declares from now on, as a whole. A refused object stays as it was, where it was."""
        return self._ledger.replace(self._key(document), decoded)

    def objects(self, document: str) -> Mapping[Row, Object[Any]]:
        """Returns what a document declares now, the last good versions of what is refused among it."""
        return self._ledger.objects(self._key(document))

    def fail(self, document: str, *problems: Problem) -> None:
        """Notes that a document cannot be read: its objects stay as they are."""
        self._ledger.fail(self._key(document), *problems)

    def remove(self, document: str) -> list[Edit]:
        """Forgets a document, with what it declared."""
        return self._ledger.remove(self._key(document))

    def put(self, row: Row, decoded: Decoded) -> list[Edit]:
        """Takes a single object. One that is refused stays as it was; one that is not read any more (of another revision) goes."""
        if not (decoded.entries or decoded.problems):
            return self.drop(row)
        self._rows.add(row)
        return self._ledger.replace(self._key(row), (decoded,))

    def drop(self, row: Row) -> list[Edit]:
        """Forgets a single object."""
        self._rows.discard(row)
        return self._ledger.remove(self._key(row))

    def retain(self, rows: Collection[Row]) -> list[Edit]:
        """Forgets the single objects that are not among these: what a complete list leaves out has gone unseen."""
        gone = sorted(self._rows.difference(rows))
        return [edit for row in gone for edit in self.drop(row)]

    def _key(self, document: str | Row) -> DocumentKey:
        return DocumentKey(self._rank, self._name, document)


def _duplicate(o: Object[Any], key: DocumentKey, winner: DocumentKey) -> Problem:
    message = "it is there twice: the first one counts" if key == winner else f"{winner} declares it too, and counts"
    file = shown(key.document) if isinstance(key.document, str) else ""
    return Problem(
        code="duplicate-object",
        object=o.ref,
        path="metadata.name",
        message=message,
        severity=Severity.WARNING,
        file=file,
    )
