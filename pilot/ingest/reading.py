"""What files declare, decoded; of a file that is read again, the documents that did not change are not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from pilot.config.catalogue import Catalogue
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.ingest.chunks import Chunk, split
from pilot.ingest.decode import Decoded, DocumentOrigin, decode_document
from pilot.ingest.documents import Document, new_reader, read_chunk, read_json
from pilot.ingest.folder import shown


class Reading:
    """The pieces of one file by their digests, with the lines before them. Kept until the file is read again."""

    def __init__(self) -> None:
        self.pieces: dict[bytes, tuple[int, list[Decoded]]] = {}


class Reader:
    """Decodes files. What it takes from the last reading of a file is what that one made of the same text. It remembers what the files that it has
    read have in common until it is told to forget that."""

    def __init__(self, origin: DocumentOrigin, catalogue: Catalogue) -> None:
        self._origin, self._catalogue = origin, catalogue
        self._last: dict[str, Reading] = {}
        self._blocks = new_reader()

    def read(self, path: str, data: bytes) -> list[Decoded]:
        """Returns what the documents of a file gave, in order. SyntaxFault where one of them cannot be parsed."""
        file = shown(path)
        if path.endswith(".json"):
            return [self._decode(file, document) for document in read_json(data)]
        chunks = list(split(data))
        if len(chunks) < 2:  # a file of one object is read as a whole or not at all
            self.forget(path)
            return [decoded for chunk in chunks for decoded in self._decode_chunk(file, chunk)]
        last, reading = self._last.get(path), Reading()
        found: list[Decoded] = []
        for chunk in chunks:
            digest = hashlib.blake2b(chunk.text, digest_size=16).digest()
            known = last.pieces.get(digest) if last is not None else None
            decoded = self._decode_chunk(file, chunk) if known is None else _moved(known[1], chunk.lines - known[0])
            reading.pieces[digest] = chunk.lines, decoded
            found += decoded
        self._last[path] = reading
        return found

    def forget(self, path: str) -> None:
        """Keeps nothing of a file any more."""
        self._last.pop(path, None)

    def forget_common(self) -> None:
        """Forgets what files have in common."""
        self._blocks = new_reader()

    def _decode_chunk(self, file: str, chunk: Chunk) -> list[Decoded]:
        return [self._decode(file, document) for document in read_chunk(chunk, self._blocks)]

    def _decode(self, file: str, document: Document) -> Decoded:
        decoded = decode_document(document.plain, file, document.line_of, self._origin, self._catalogue)
        if document.repeated:
            subject = next((e.object.ref for e in decoded.entries), ObjectRef())
            decoded = decoded._replace(problems=(*decoded.problems, *_repeated(document, subject, file)))
        return decoded


def _moved(found: list[Decoded], lines: int) -> list[Decoded]:
    """Returns what the same text gives so many lines further down."""
    if not lines:
        return found
    return [
        decoded._replace(problems=tuple(_lower(problem, lines) for problem in decoded.problems)) for decoded in found
    ]


def _lower(problem: Problem, lines: int) -> Problem:
    return msgspec.structs.replace(problem, line=problem.line + lines) if problem.line else problem


def _repeated(document: Document, subject: ObjectRef, file: str) -> Iterable[Problem]:
    for key, line in document.repeated:
        message = f"{key!r} is there twice in one mapping: the last one counts"
        yield Problem(
            code="duplicate-key", object=subject, message=message, severity=Severity.WARNING, file=file, line=line
        )
