"""Large files are parsed by worker processes, and read apart from small files."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from pilot.config.kinds.kubernetes import SERVICE
from pilot.ingest.batch import Batch
from pilot.ingest.files.chunk_parser import ChunkParser, build_workers
from pilot.ingest.files.chunk_program import ChunkProgram
from pilot.ingest.files.chunks import Chunk, split
from pilot.ingest.files.documents import SyntaxFault, read_chunk
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import Overload, WorkerPool
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import service

CHUNKS = {
    "ordinary": "a: 1\nb:\n- c: [1.5, null, yes]\n  d: {e: text}\n- [f, [g]]\n",
    "aliases": "a: &x {b: [1, 2]}\nc: *x\nd:\n  <<: *x\n  e: 1\n",
    "repeated keys": "a: 1\nb: {c: 1, c: 2}\na: 3\n",
    "a scalar": "text\n",
    "nothing": "# comment\n",
    "several documents in a directive's chunk": "%YAML 1.1\n---\na: 1\n---\nb: 2\n",
}
PATHS = ("", "a", "b[0].c[1]", "b[0].d.e", "b[1][1][0]", "c.b[1]", "d.e", "b.c", "missing.a", "b[9]")
LARGE = 70_000
"""Number of bytes that make a file large."""


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[WorkerPool]:
    workers = build_workers()
    try:
        yield workers
    finally:
        await workers.stop()


@pytest.mark.slow
async def test_workers_parse_chunks_like_this_process(workers: WorkerPool) -> None:
    chunks = [Chunk(text.encode(), 7) for text in CHUNKS.values()]
    parsed = await ChunkParser(workers).parse("folder", chunks)
    for chunk in chunks:
        documents, expected = parsed[chunk], read_chunk(chunk)
        assert isinstance(documents, list)
        assert [d[:3] for d in documents] == [d[:3] for d in expected]
        assert [[d.line_of(path) for path in PATHS] for d in documents] == [
            [d.line_of(path) for path in PATHS] for d in expected
        ]


@pytest.mark.slow
async def test_faults_of_chunks_have_their_message_and_line(workers: WorkerPool) -> None:
    chunks = list(split(b"a: 1\n---\nb: [\n---\nc: 1\n"))
    parsed = await ChunkParser(workers).parse("folder", chunks)
    with pytest.raises(SyntaxFault) as expected:
        read_chunk(chunks[1])
    fault = parsed[chunks[1]]
    assert isinstance(fault, SyntaxFault)
    assert (str(fault), fault.line) == (str(expected.value), expected.value.line)
    assert isinstance(parsed[chunks[0]], list)
    assert isinstance(parsed[chunks[2]], list)


@pytest.mark.slow
async def test_many_chunks_are_parsed_in_several_jobs(workers: WorkerPool) -> None:
    chunks = list(split("---\n".join(f"name: {number}\ntext: {'x' * 999}\n" for number in range(1500)).encode()))
    parsed = await ChunkParser(workers).parse("folder", chunks)
    names = [documents[0].plain["name"] for documents in parsed.values() if isinstance(documents, list)]
    assert names == list(range(1500))


class Jobs:
    """Runs the jobs of the program in this process, as soon as `allowed` is set. It fails if `is_overloaded`."""

    def __init__(self) -> None:
        self.allowed, self.is_overloaded, self.count = asyncio.Event(), False, 0

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        self.count += 1
        await self.allowed.wait()
        if self.is_overloaded:
            raise Overload
        return _run(b"".join(parts))


_run = ChunkProgram().run


class Folder:
    """A watched folder, whose large files are parsed by `jobs`."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.jobs, self.mesh, self.problems = path, Jobs(), Mesh(), ProblemStore(lambda _: None)
        clock = asyncio.get_running_loop()
        self.commits: list[set[str]] = []
        batch = Batch(
            self.mesh,
            clock,
            parse_duration("5ms"),
            parse_duration("1s"),
            lambda _: self.commits.append(self.services()),
        )
        ledger = Ledger(self.problems).source(0, "files")
        self.source = FileSource(str(path), batch, ledger, parser=ChunkParser(self.jobs))
        self.source.load_initial()

    def services(self) -> set[str]:
        return {key.name for key, _ in SERVICE.table(self.mesh).rows()}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)


def large(*texts: str) -> str:
    return "---\n".join((*texts, f"# {'x' * LARGE}\n"))


@pytest_asyncio.fixture
async def folder(tmp_path: pathlib.Path) -> AsyncIterator[Folder]:
    folder = Folder(tmp_path)
    await folder.source.start()
    yield folder
    await folder.source.stop()


@pytest.mark.slow
async def test_small_files_do_not_wait_for_large_ones(folder: Folder) -> None:
    (folder.path / "a.yaml").write_text(large(service("a"), service("b")))
    await folder.until(lambda: folder.jobs.count == 1)
    (folder.path / "small.yaml").write_text(service("small"))
    await folder.until(lambda: folder.services() == {"small"})
    folder.jobs.allowed.set()
    await folder.until(lambda: folder.services() == {"small", "a", "b"})
    (folder.path / "a.yaml").write_text(large(service("a"), service("c")))
    await folder.until(lambda: folder.services() == {"small", "a", "c"})


@pytest.mark.slow
async def test_large_file_that_was_replaced_meanwhile_is_not_used(folder: Folder) -> None:
    (folder.path / "a.yaml").write_text(large(service("a")))
    (folder.path / "b.yaml").write_text(large(service("b")))
    await folder.until(lambda: folder.jobs.count == 1)
    (folder.path / "a.yaml").write_text(service("small"))
    (folder.path / "b.yaml").unlink()
    await folder.until(lambda: folder.services() == {"small"})
    folder.jobs.allowed.set()
    (folder.path / "c.yaml").write_text(large(service("c")))
    await folder.until(lambda: "c" in folder.services())
    assert folder.services() == {"small", "c"}


@pytest.mark.slow
@pytest.mark.parametrize("value", ["1", str(2**70)])
async def test_file_that_workers_cannot_parse_is_parsed_here(folder: Folder, value: str) -> None:
    folder.jobs.is_overloaded = value == "1"
    folder.jobs.allowed.set()
    (folder.path / "a.yaml").write_text(large(f"{service('a')}status: {{a: {value}}}\n"))
    await folder.until(lambda: folder.services() == {"a"})


@pytest.mark.slow
async def test_invalid_large_file_is_reported_with_its_line(folder: Folder) -> None:
    folder.jobs.allowed.set()
    (folder.path / "a.yaml").write_text(large(service("a"), service("b"), "a: [\n"))
    await folder.until(lambda: any(problem.code == "syntax-error" for problem in folder.problems))
    (problem,) = folder.problems
    assert problem.line == 12
    assert folder.services() == set()


@pytest.mark.slow
async def test_objects_that_move_to_a_large_file_stay_in_force(folder: Folder) -> None:
    for name in ("moved", "removed"):
        (folder.path / f"{name}.yaml").write_text(service(name))
    await folder.until(lambda: folder.services() == {"moved", "removed"})
    folder.commits.clear()
    (folder.path / "large.yaml").write_text(large(service("moved"), service("new")))
    await folder.until(lambda: folder.jobs.count == 1)
    for name in ("moved", "removed"):
        (folder.path / f"{name}.yaml").unlink()
    (folder.path / "small.yaml").write_text(service("small"))
    await folder.until(lambda: "small" in folder.services())
    assert folder.services() == {"moved", "removed", "small"}
    folder.jobs.allowed.set()
    await folder.until(lambda: folder.services() == {"moved", "new", "small"})
    assert all("moved" in services for services in folder.commits)
    (folder.path / "small.yaml").unlink()
    await folder.until(lambda: folder.services() == {"moved", "new"})
