"""Resolves conflicts between documents that declare the same object.

A document is a file or a single object. The document with the lowest rank wins. If it is removed, the next document
takes over. One ledger serves all sources, and each source reports its documents through its own `SourceLedger`. If an
object in a document becomes invalid, the document keeps its last valid version.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from pilot.config.object import Object
from pilot.config.problem import ObjectRef, Problem, Severity, warning
from pilot.ingest.batch import ENDPOINTS
from pilot.ingest.decode import UNVERSIONED, Decoded, ObjectVersion, Row
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.lib.text import printable_path

MAX_LISTED = 10_000
"""Number of problems of a namespace's objects beyond which only one problem of each further object is listed.

Objects of a few megabytes can have a million problems, which take hundreds of megabytes.
"""

NO_VERSIONS: Mapping[Row, ObjectVersion] = MappingProxyType({})


class DocumentKey(NamedTuple):
    """Identifies a document. Keys sort by precedence: rank of the source, name of the source, name of the document.

    `document` is the path of a file, or the row of a single object.
    """

    rank: int
    source: str
    document: str | Row

    def __str__(self) -> str:
        return printable_path(self.document) if isinstance(self.document, str) else self.source


class _Document:
    """The objects of a document, their versions if known, its own problems, and the rows for which another document
    takes precedence. `is_reported` is whether the problem store has problems of the document."""

    __slots__ = ("is_reported", "lost", "objects", "problems", "versions")

    def __init__(self) -> None:
        self.objects: dict[Row, Object[Any]] = {}
        self.versions: Mapping[Row, ObjectVersion] = NO_VERSIONS
        self.problems: tuple[Problem, ...] = ()
        self.lost: dict[Row, Problem] = {}
        self.is_reported = False


class Ledger:
    """Converts changes of documents to edits, and tracks the problems of each document.

    Callers must hold `turn` if they run in another thread, or if they await between a change and the use of its edits.
    If edits were used in the wrong order, the table would contain an object that does not take precedence.
    """

    def __init__(self, problems: ProblemStore) -> None:
        self._problems = problems
        self.turn = asyncio.Lock()
        self._documents: dict[DocumentKey, _Document] = {}
        self._claims: dict[Row, list[DocumentKey]] = {}
        self._listed = Counter[str]()  # the numbers of problems of single objects, by namespace

    def source(self, rank: int, name: str) -> SourceLedger:
        """Return the ledger of a source. If two sources declare the same object, the one with the lower rank wins."""
        return SourceLedger(self, rank, name)

    def replace(self, key: DocumentKey, decoded: Iterable[Decoded]) -> list[Edit]:
        """Replace the objects of a document. An invalid object keeps its last valid version."""
        document = self._documents.get(key) or self._documents.setdefault(key, _Document())
        old, new, versions = document.objects, {}, {}
        problems: list[Problem] = []
        is_single = not isinstance(key.document, str)  # files may contain versions that were copied from a cluster
        for part in decoded:
            problems += part.problems
            for entry in part.entries:
                row = entry.table, entry.key
                if row in new:
                    problems.append(_duplicate(entry.object, key, key))
                else:
                    new[row] = entry.object
                    if is_single and entry.version.generation and entry.table not in ENDPOINTS:
                        versions[row] = entry.version
            for row in part.refused:
                if row in old and row not in new:
                    new[row] = old[row]
                    if row in document.versions:
                        versions[row] = document.versions[row]
        document.versions = versions or NO_VERSIONS
        self._list_problems(key, document, problems)
        return self._change(key, document, new)

    def _list_problems(self, key: DocumentKey, document: _Document, problems: Sequence[Problem]) -> None:
        """Set the problems of a document."""
        if not (problems or document.problems):
            return
        if not isinstance(key.document, str):
            namespace = getattr(key.document[1], "namespace", "")
            self._listed[namespace] -= len(document.problems)
            if len(problems) > 1 and self._listed[namespace] + len(problems) > MAX_LISTED:
                first = next((problem for problem in problems if problem.severity is Severity.ERROR), problems[0])
                message = f"{len(problems) - 1} more; the objects of namespace {namespace} have too many to list them"
                problems = (first, _about(first.object, warning("more-problems", "", message)))
            self._listed[namespace] += len(problems)
        document.problems = tuple(problems)

    def objects(self, key: DocumentKey) -> Mapping[Row, Object[Any]]:
        """Return the objects of a document, including the last valid versions of invalid objects."""
        document = self._documents.get(key)
        return document.objects if document is not None else {}

    def document_of(self, row: Row) -> DocumentKey | None:
        """Return the document that provides a row, or None if no document declares it."""
        claims = self._claims.get(row)
        return claims[0] if claims else None

    def find(self, row: Row) -> tuple[Object[Any], ObjectVersion] | None:
        """Return the object of a row, with its version, or None if no document declares it."""
        claims = self._claims.get(row)
        if not claims:
            return None
        document = self._documents[claims[0]]
        return document.objects[row], document.versions.get(row, UNVERSIONED)

    def version_of(self, row: Row, o: object) -> ObjectVersion:
        """Return the version of an object, or an empty version if the row has another object by now."""
        current = self.find(row)
        return current[1] if current is not None and current[0] == o else UNVERSIONED

    def fail(self, key: DocumentKey, *problems: Problem) -> None:
        """Report that a document cannot be read. Its objects stay in force."""
        document = self._documents.get(key) or self._documents.setdefault(key, _Document())
        document.problems = problems
        self._report(key, document)

    def remove(self, key: DocumentKey) -> list[Edit]:
        """Remove a document and its objects."""
        document = self._documents.get(key)
        if document is None:
            return []
        self._list_problems(key, document, ())
        edits = self._change(key, document, {})
        del self._documents[key]
        return edits

    def _change(self, key: DocumentKey, document: _Document, new: dict[Row, Object[Any]]) -> list[Edit]:
        """Set the objects of a document, and return the edits of the rows that change."""
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
                self._report_conflicts(row, claims, document)
        self._report(key, document)
        return edits

    def _report_conflicts(self, row: Row, claims: list[DocumentKey], changed: _Document) -> None:
        """Report a conflict for each document that declares a row, except the winner."""
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
        problems = (*document.problems, *document.lost.values())
        if not (problems or document.is_reported):
            return
        document.is_reported = bool(problems)
        where = key.document if isinstance(key.document, str) else "/".join((key.document[0], *key.document[1]))
        self._problems.replace((key.source, where), problems)


class SourceLedger:
    """The ledger of one source.

    A source reports either whole documents by name (`replace`, `fail`, `remove`) or single objects (`put`, `drop`,
    `retain`).
    """

    def __init__(self, ledger: Ledger, rank: int, name: str) -> None:
        self._ledger, self._rank, self._name = ledger, rank, name
        self._rows: set[Row] = set()
        self.turn = ledger.turn

    def replace(self, document: str, decoded: Iterable[Decoded]) -> list[Edit]:
        """Replace the objects of a document. An invalid object keeps its last valid version."""
        return self._ledger.replace(self._key(document), decoded)

    def objects(self, document: str) -> Mapping[Row, Object[Any]]:
        """Return the objects of a document, including the last valid versions of invalid objects."""
        return self._ledger.objects(self._key(document))

    def is_declared(self, table: str, key: Any) -> bool:
        """Return whether a document of any source declares a row."""
        return self._ledger.document_of((table, key)) is not None

    def fail(self, document: str, *problems: Problem) -> None:
        """Report that a document cannot be read. Its objects stay in force."""
        self._ledger.fail(self._key(document), *problems)

    def remove(self, document: str) -> list[Edit]:
        """Remove a document and its objects."""
        return self._ledger.remove(self._key(document))

    def put(self, row: Row, decoded: Decoded) -> list[Edit]:
        """Set a single object. An invalid object keeps its last valid version. An ignored object is removed."""
        if not (decoded.entries or decoded.problems):
            return self.drop(row)
        self._rows.add(row)
        return self._ledger.replace(self._key(row), (decoded,))

    def drop(self, row: Row) -> list[Edit]:
        """Remove a single object."""
        self._rows.discard(row)
        return self._ledger.remove(self._key(row))

    def retain(self, rows: Collection[Row]) -> list[Edit]:
        """Remove the single objects that are not in `rows`, which is a complete list."""
        gone = sorted(self._rows.difference(rows))
        return [edit for row in gone for edit in self.drop(row)]

    def _key(self, document: str | Row) -> DocumentKey:
        return DocumentKey(self._rank, self._name, document)


def _about(subject: ObjectRef, problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, object=subject)


def _duplicate(o: Object[Any], key: DocumentKey, winner: DocumentKey) -> Problem:
    message = (
        "this object is defined twice; the first definition wins"
        if key == winner
        else f"this object is also defined in {winner}, which takes precedence"
    )
    file = printable_path(key.document) if isinstance(key.document, str) else ""
    return Problem(
        code="duplicate-object",
        object=o.ref,
        path="metadata.name",
        message=message,
        severity=Severity.WARNING,
        file=file,
    )
