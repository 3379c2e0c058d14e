"""Decodes files. When a file changes, only the changed documents are decoded again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from pilot.config.catalogue import Catalogue
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.ingest.decode import Decoded, DocumentOrigin, decode_document
from pilot.ingest.files.chunk_parser import NOTHING, Parsed
from pilot.ingest.files.chunks import Chunk, split
from pilot.ingest.files.documents import Document, SyntaxFault, read_chunk, read_json
from pilot.lib.text import printable_path


class DecodedFile:
    """The decoded chunks of a file, keyed by digest. Each chunk is stored with the number of lines before it."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, tuple[int, list[Decoded]]] = {}


class FileDecoder:
    """Decodes files. When a file is decoded again, the results of unchanged chunks are reused."""

    def __init__(self, origin: DocumentOrigin, catalogue: Catalogue) -> None:
        self._origin, self._catalogue = origin, catalogue
        self._last: dict[str, DecodedFile] = {}

    def changed_chunks(self, path: str, data: bytes) -> list[Chunk]:
        """Return the chunks of a YAML file that differ from those at the last call of `read`."""
        if path.endswith(".json"):
            return []
        last = self._last.get(path)
        return [chunk for chunk in split(data) if last is None or _digest(chunk) not in last.chunks]

    def read(self, path: str, data: bytes, parsed: Parsed = NOTHING) -> list[Decoded]:
        """Return the decoded documents of a file, in order. Raise SyntaxFault if one of them is invalid.

        `parsed` contains chunks that have been parsed before.
        """
        file = printable_path(path)
        if path.endswith(".json"):
            return [self._decode(file, document) for document in read_json(data)]
        chunks = list(split(data))
        if len(chunks) < 2:  # a file with one object is decoded as a whole
            self.forget(path)
            return [decoded for chunk in chunks for decoded in self._decode_chunk(file, chunk, parsed)]
        last, decoded_file = self._last.get(path), DecodedFile()
        documents: list[Decoded] = []
        for chunk in chunks:
            digest = _digest(chunk)
            previous = last.chunks.get(digest) if last is not None else None
            decoded = (
                self._decode_chunk(file, chunk, parsed)
                if previous is None
                else _moved(previous[1], chunk.lines - previous[0])
            )
            decoded_file.chunks[digest] = chunk.lines, decoded
            documents += decoded
        self._last[path] = decoded_file
        return documents

    def forget(self, path: str) -> None:
        """Discard the cached results of a file."""
        self._last.pop(path, None)

    def _decode_chunk(self, file: str, chunk: Chunk, parsed: Parsed) -> list[Decoded]:
        documents = parsed.get(chunk)
        if isinstance(documents, SyntaxFault):
            raise documents
        return [self._decode(file, document) for document in (read_chunk(chunk) if documents is None else documents)]

    def _decode(self, file: str, document: Document) -> Decoded:
        decoded = decode_document(document.plain, file, document.line_of, self._origin, self._catalogue)
        if document.repeated:
            subject = next((e.object.ref for e in decoded.entries), ObjectRef())
            decoded = decoded._replace(problems=(*decoded.problems, *repeated_keys(document, subject, file)))
        return decoded


def _digest(chunk: Chunk) -> bytes:
    return hashlib.blake2b(chunk.text, digest_size=16).digest()


def _moved(documents: list[Decoded], lines: int) -> list[Decoded]:
    """Return decoded documents with `lines` added to the line numbers of their problems."""
    if not lines:
        return documents
    return [
        document._replace(problems=tuple(_lower(problem, lines) for problem in document.problems))
        for document in documents
    ]


def _lower(problem: Problem, lines: int) -> Problem:
    return msgspec.structs.replace(problem, line=problem.line + lines) if problem.line else problem


_TOP_KEYS = frozenset(("apiVersion", "kind", "metadata", "spec", "status", "data"))
"""Keys of objects of Kubernetes."""


def repeated_keys(document: Document, subject: ObjectRef, file: str, strict: bool = False) -> Iterator[Problem]:
    """Yield a problem for each key that occurs more than once in a mapping. It is an error if `strict` is true."""
    severity = Severity.ERROR if strict else Severity.WARNING
    keys = {key for key, _ in document.repeated}
    is_joined = {"apiVersion", "kind"} <= keys
    first = ""
    for key, line in document.repeated:
        message = f"{key!r} occurs twice in one mapping; the last value wins"
        if is_joined and key in _TOP_KEYS:
            first = first or key
            if key != first:  # the other keys of an object that follows without a separator
                continue
            message += f": is a line --- missing before line {line}?"
        yield Problem(code="duplicate-key", object=subject, message=message, severity=severity, file=file, line=line)
