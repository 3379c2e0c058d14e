"""Parses chunks of large YAML files in worker processes.

A thread of this process would parse them as fast, but would hold up the event loop: the loop waits for the thread each
time that it has released Python's global lock, for example to send a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from pilot.ingest.files.chunk_program import ParsedChunk, ParsedDocument
from pilot.ingest.files.chunks import Chunk
from pilot.ingest.files.documents import Document, SyntaxFault
from pilot.ingest.files.outline import Inside, Outline
from pilot.lib.logging.log import scope
from pilot.lib.workers.frames import JobLimits
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import JobError, JobRunner, WorkerPool

_PROGRAM = "pilot.ingest.files.chunk_program"
_LIMITS = (JobLimits(20.0, 512 << 20),)
"""Limits of a job. 1 MiB of YAML takes about half a second and 30 MiB."""
_LONGEST_WAIT = 600.0
"""Maximum number of seconds until chunks are parsed. Each folder waits for one file at a time."""
_LARGEST = 2 << 20
"""Maximum size in bytes of a chunk that is parsed by a worker. Decoding a larger result would hold up other threads."""
_TOGETHER = 512 << 10
"""Size in bytes up to which chunks are parsed together."""
Parsed = Mapping[Chunk, list[Document] | SyntaxFault]
"""Parsed chunks: the documents of each, or its fault."""
NOTHING: Parsed = MappingProxyType({})
_decoder = msgspec.msgpack.Decoder(list[ParsedChunk | None])
_log = scope("config")


def build_workers() -> WorkerPool:
    """Return the worker processes that parse chunks. They start with the first job."""
    return WorkerPool(_PROGRAM, _LIMITS, _LONGEST_WAIT)


class _EncodedOutline(Outline):
    """An outline that is decoded when a line is needed."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data: bytes | None = data

    def inside(self) -> Inside:
        data, self._data = self._data, None
        if data is not None:
            self._inside = msgspec.msgpack.decode(data)
        return self._inside


class ChunkParser:
    """Parses chunks."""

    def __init__(self, jobs: JobRunner) -> None:
        self._jobs = jobs

    async def parse(self, folder: str, chunks: Iterable[Chunk]) -> Parsed:
        """Return the parsed chunks of a file in a folder, except those that no worker can parse."""
        parsed: dict[Chunk, list[Document] | SyntaxFault] = {}
        for group in _groups(chunk for chunk in chunks if len(chunk.text) <= _LARGEST):
            try:
                result = await self._jobs.run(JobSource(folder), msgspec.msgpack.encode(group))
            except JobError as fault:
                _log.warning("%s: a worker process cannot parse a part of a file: %s", folder, fault)
                break
            for chunk, part in zip(group, _decoder.decode(result), strict=True):
                if part is not None:
                    parsed[chunk] = (
                        SyntaxFault(part.message, part.line) if part.message else list(map(_document, part.documents))
                    )
        return parsed


def _groups(chunks: Iterable[Chunk]) -> Iterator[Sequence[Chunk]]:
    """Yield chunks that are parsed together."""
    group, size = list[Chunk](), 0
    for chunk in chunks:
        if group and size + len(chunk.text) > _TOGETHER:
            yield group
            group, size = [], 0
        group.append(chunk)
        size += len(chunk.text)
    if group:
        yield group


def _document(parsed: ParsedDocument) -> Document:
    return Document(parsed.plain, parsed.line, parsed.repeated, _EncodedOutline(parsed.inside))
