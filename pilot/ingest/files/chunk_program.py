"""The program that worker processes run to parse chunks of large YAML files."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from pilot.ingest.files.chunks import Chunk
from pilot.ingest.files.documents import SyntaxFault, read_chunk

NICENESS = 10
"""Niceness of the workers. Large files are read after everything else."""
_decoder = msgspec.msgpack.Decoder(list[tuple[bytes, int]])


class ParsedDocument(msgspec.Struct, array_like=True, frozen=True):
    """A document. `inside` contains the encoded places inside it. The other fields are those of a Document."""

    plain: Any
    line: int
    repeated: tuple[tuple[str, int], ...]
    inside: bytes


class ParsedChunk(msgspec.Struct, array_like=True, frozen=True):
    """The documents of a chunk, or the message and line of a SyntaxFault."""

    documents: tuple[ParsedDocument, ...] = ()
    message: str = ""
    line: int = 0


class ChunkProgram:
    """Parses chunks. It has no state."""

    def load(self, state: bytes) -> None:
        """Do nothing."""

    def run(self, job: bytes) -> bytes:
        """Return a list with the encoded ParsedChunk of each chunk, or null for a chunk that cannot be encoded."""
        return msgspec.msgpack.encode([_parse(Chunk(text, lines)) for text, lines in _decoder.decode(job)])


def _parse(chunk: Chunk) -> msgspec.Raw | None:
    try:
        documents = tuple(
            ParsedDocument(
                document.plain,
                document.line,
                document.repeated,
                msgspec.msgpack.encode(document.outline.inside()),
            )
            for document in read_chunk(chunk)
        )
        return msgspec.Raw(msgspec.msgpack.encode(ParsedChunk(documents)))
    except SyntaxFault as fault:
        return msgspec.Raw(msgspec.msgpack.encode(ParsedChunk(message=str(fault), line=fault.line)))
    except (ValueError, OverflowError, RecursionError):  # such as an integer of more than 64 bits
        return None


def create_program() -> ChunkProgram:
    """Return the program of a worker."""
    os.nice(NICENESS)
    return ChunkProgram()
