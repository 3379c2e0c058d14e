"""Failures while reading files, which must not affect the process or other files."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pathlib
import random
import threading
from typing import Any

import pytest
import yaml

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.problem import Problem
from pilot.debug.pages.configuration import problemz
from pilot.ingest.batch import Batch
from pilot.ingest.decode import decode_document
from pilot.ingest.files import file_decoder as reading
from pilot.ingest.files import file_source
from pilot.ingest.files.chunks import Chunk, split
from pilot.ingest.files.documents import SyntaxFault, read_chunk, read_documents
from pilot.ingest.files.file_io import NoFile, TooLarge, read_file
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.files.folder import UNKNOWN, Signature, sign, valid_parent
from pilot.ingest.files.mesh_files import MeshFiles
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import MAX_REPORTED, ProblemStore, log_problem
from pilot.lib.duration import parse_duration
from pilot.lib.text import printable_path
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import ConfigFolder, service
from testing.mesh.clock import VirtualClock
from testing.mesh.debug_server import sources

# -- a pipe or a device in the place of a file -----------------------------------------------------------------------------


def test_file_replaced_by_a_pipe_does_not_hang(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    files = ConfigFolder(tmp_path)
    assert sign(str(tmp_path / "a.yaml")) is not None
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    assert sign(str(tmp_path / "a.yaml")) is None
    monkeypatch.setattr("pilot.ingest.files.folder.sign", lambda path: Signature(1, 1, 1))
    files.write("b.yaml", service("b", 81))
    files.notify("a.yaml", "b.yaml")
    assert files.services == {"b": 81}


def test_devices_and_folders_are_not_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NoFile):
        read_file("/dev/zero", 10)
    with pytest.raises(NoFile):
        read_file(str(tmp_path), 10)
    assert sign("/dev/zero") is None


# -- transient errors ------------------------------------------------------------------------------------------------------


def fail_with(code: int) -> Any:
    def fault(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fault


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["os.open", "os.stat"])
def test_transient_read_error_is_retried(
    call: str, number: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    files = ConfigFolder(tmp_path)
    path = files.write("a.yaml", service("a", 81))
    with monkeypatch.context() as patched:
        patched.setattr("os.open", fail_with(number))
        if call == "os.stat":
            patched.setattr("os.stat", fail_with(number))
            assert sign(str(path)) == UNKNOWN
        for _ in range(3):
            files.source.changed([str(path)])
            files.source.retry()
        files.settle()
        assert (files.services, files.codes) == ({"a": 80}, ["unreadable-file"])
    files.source.retry()
    files.settle()
    assert (files.services, files.codes) == ({"a": 81}, [])


def test_unreadable_file_is_read_at_the_next_rescan(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    with monkeypatch.context() as patched:
        patched.setattr("os.open", fail_with(errno.EMFILE))
        files = ConfigFolder(tmp_path)
    assert files.services == {}
    files.source.rescan()
    files.settle()
    assert (files.services, files.codes) == ({"a": 80}, [])


def test_unreadable_folder_is_retried(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.yaml").write_text(service("a"))
    real = os.scandir
    with monkeypatch.context() as patched:
        patched.setattr("os.scandir", lambda path: fail_with(errno.EMFILE)() if path.endswith("x") else real(path))
        files = ConfigFolder(tmp_path)
        files.source.retry()
        assert (files.services, files.codes) == ({}, ["unreadable-folder"])
    files.source.retry()
    files.settle()
    assert (files.services, files.codes) == ({"a": 80}, [])


class WatchedFolder:
    """A folder that is watched through kernel notifications."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.mesh, self.problems = Mesh(), ProblemStore(lambda _: None)
        self.batch = Batch(
            self.mesh, asyncio.get_running_loop(), parse_duration("1ms"), parse_duration("1s"), lambda _: None
        )
        self.source = FileSource(str(folder), self.batch, Ledger(self.problems).source(0, "files"))
        self.source.load_initial()
        self.batch.flush()

    def ports(self) -> dict[str, int]:
        return {key.name: row.spec.ports[0].port for key, row in SERVICE.table(self.mesh).rows()}

    async def until(self, ports: dict[str, int]) -> None:
        async with asyncio.timeout(20):
            while self.ports() != ports:
                await asyncio.sleep(0.01)


async def test_watched_folder_retries_automatically(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "_RETRY", 0.01)
    (tmp_path / "a.yaml").write_text(service("a"))
    with monkeypatch.context() as patched:
        patched.setattr("pilot.ingest.files.file_source.read_file", fail_with(errno.EMFILE))
        folder = WatchedFolder(tmp_path)
        await folder.source.start()
        await asyncio.sleep(0)
        assert folder.ports() == {}
    await folder.until({"a": 80})
    await folder.source.stop()


def test_unreadable_mesh_config_is_retried(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, problems = Mesh(), ProblemStore(lambda _: None)
    batch = Batch(mesh, VirtualClock(), parse_duration("1ms"), parse_duration("1s"), lambda _: None)
    (tmp_path / "mesh").write_text("trustDomain: a.example\n")
    files = MeshFiles(str(tmp_path / "mesh"), str(tmp_path / "networks"), batch, problems)
    with monkeypatch.context() as patched:
        patched.setattr("os.open", fail_with(errno.EMFILE))
        files.load_initial()
        batch.flush()
    assert mesh.mesh.peek("mesh").trust_domain == "cluster.local"
    assert [p.code for p in problems] == ["unreadable-file"] * 2
    files.retry()
    batch.flush()
    assert mesh.mesh.peek("mesh").trust_domain == "a.example"
    assert list(problems) == []


async def test_mesh_config_folder_may_be_created_later(tmp_path: pathlib.Path) -> None:
    mesh, problems = Mesh(), ProblemStore(lambda _: None)
    batch = Batch(mesh, asyncio.get_running_loop(), parse_duration("1ms"), parse_duration("1s"), lambda _: None)
    files = MeshFiles(str(tmp_path / "late" / "mesh"), str(tmp_path / "late" / "networks"), batch, problems)
    files.load_initial()
    batch.flush()
    await files.start()
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "mesh").write_text("trustDomain: a.example\n")
    async with asyncio.timeout(20):
        while mesh.mesh.peek("mesh").trust_domain != "a.example":
            await asyncio.sleep(0.01)
    await files.stop()


# -- rejected files -------------------------------------------------------------------------------------------------------


def test_large_file_is_reported_and_keeps_its_objects(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    files = ConfigFolder(tmp_path, limit=1000)
    files.write("a.yaml", service("a", 81) + "#" * 1000)
    files.write("b.yaml", service("b", 81))
    files.notify("a.yaml", "b.yaml")
    assert files.services == {"a": 80, "b": 81}
    assert [(p.code, p.file) for p in files.problems] == [("file-too-large", str(tmp_path / "a.yaml"))]
    files.write("a.yaml", service("a", 81))
    files.notify("a.yaml")
    assert (files.services, files.codes) == ({"a": 81, "b": 81}, [])


def test_file_at_the_size_limit_is_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    data, signature = read_file(str(tmp_path / "a"), 100)
    assert (data, signature) == (b"x" * 100, sign(str(tmp_path / "a")))
    with pytest.raises(TooLarge):
        read_file(str(tmp_path / "a"), 99)


@pytest.mark.parametrize("fault", [MemoryError(), RecursionError("deep"), ValueError("x")])
def test_exception_affects_only_its_file(
    fault: Exception, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = read_chunk

    def fail(chunk: Any) -> Any:
        if b"bad" in chunk.text:
            raise fault
        return real(chunk)

    monkeypatch.setattr(reading, "read_chunk", fail)
    for name in ("bad", "good"):
        (tmp_path / f"{name}.yaml").write_text(service(name))
    files = ConfigFolder(tmp_path)
    assert (files.services, files.codes) == ({"good": 80}, ["internal-error"])


def test_large_mesh_config_is_reported_and_keeps_the_last_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, problems = Mesh(), ProblemStore(lambda _: None)
    batch = Batch(mesh, VirtualClock(), parse_duration("1ms"), parse_duration("1s"), lambda _: None)
    (tmp_path / "mesh").write_text("trustDomain: a.example\n")
    files = MeshFiles(str(tmp_path / "mesh"), str(tmp_path / "networks"), batch, problems)
    files.load_initial()
    monkeypatch.setattr("pilot.ingest.files.mesh_files.LARGEST", 100)
    (tmp_path / "mesh").write_text("trustDomain: b.example\n" + "#" * 100)
    for file in files._files:
        file.load()
    batch.flush()
    assert mesh.mesh.peek("mesh").trust_domain == "a.example"
    assert [p.code for p in problems] == ["file-too-large"]
    (tmp_path / "mesh").write_text("trustDomain: a.example\n")
    files.retry()
    assert list(problems) == []


# -- a file becomes a folder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notification", ["x.yaml", "x.yaml/b.yaml", "."])
def test_file_may_become_a_folder_and_back(notification: str, tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write("x.yaml", service("a"))
    files.notify(notification if notification == "." else "x.yaml")
    assert files.services == {"a": 80}
    (tmp_path / "x.yaml").unlink()
    files.write("x.yaml/b.yaml", service("b"))
    files.notify("x.yaml", notification)
    assert files.services == {"b": 80}
    (tmp_path / "x.yaml" / "b.yaml").unlink()
    (tmp_path / "x.yaml").rmdir()
    files.write("x.yaml", service("c"))
    files.notify("x.yaml", notification)
    assert files.services == {"c": 80}
    files.write("x.yaml", service("c", 81))
    files.notify("x.yaml")
    assert files.services == {"c": 81}


# -- names that are not UTF-8 ----------------------------------------------------------------------------------------------

NON_UTF8_NAME = os.fsdecode(b"a\xff.yaml")


def test_file_with_a_non_utf_8_name_is_read_and_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / NON_UTF8_NAME).write_text(service("a", 0) + "---\n" + service("b"))
    (tmp_path / "z.yaml").write_text(service("b", 81))
    files = ConfigFolder(tmp_path)
    assert files.services == {"b": 80}
    assert sorted(p.file for p in files.problems) == [f"{tmp_path}/a\\xff.yaml", f"{tmp_path}/z.yaml"]
    text = json.dumps(asyncio.run(problemz(sources(files.mesh, problems=list(files.problems)), {})), ensure_ascii=False)
    assert "a\\\\xff.yaml, which takes precedence" in text.encode().decode()
    assert "\n".join(map(str, files.problems)).encode()


def test_notification_with_a_garbled_name_rescans_its_folder(tmp_path: pathlib.Path) -> None:
    files = ConfigFolder(tmp_path)
    files.write(f"x/{NON_UTF8_NAME}", service("a"))
    files.notify("x/a\N{REPLACEMENT CHARACTER}.yaml")
    assert files.services == {"a": 80}
    assert valid_parent("/x/a\N{REPLACEMENT CHARACTER}/b.yaml") == "/x"
    assert printable_path(NON_UTF8_NAME) == "a\\xff.yaml"


async def test_file_with_a_non_utf_8_name_is_watched(tmp_path: pathlib.Path) -> None:
    folder = WatchedFolder(tmp_path)
    await folder.source.start()
    (tmp_path / NON_UTF8_NAME).write_text(service("a"))
    await folder.until({"a": 80})
    (tmp_path / NON_UTF8_NAME).write_text(service("a", 81))
    await folder.until({"a": 81})
    await folder.source.stop()


# -- cost of reading -------------------------------------------------------------------------------------------------------


def misspelled_services(count: int) -> str:
    return "---\n".join(service(f"s{i}").replace("port: 80", "prot: 80, port: 0") for i in range(count))


def test_problem_lines_need_one_more_parse_per_document(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost is proportional to the file size, whatever the number of problems."""
    sizes: list[int] = []
    real = yaml.parse

    def record(data: bytes, **options: Any) -> Any:
        sizes.append(len(data))
        return real(data, **options)

    monkeypatch.setattr(yaml, "parse", record)
    text = misspelled_services(50)
    (tmp_path / "a.yaml").write_text(text)
    items = "".join(f"- {json.dumps(next(yaml.safe_load_all(service(f'i{i}', 0))))}\n" for i in range(50))
    (tmp_path / "b.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    files = ConfigFolder(tmp_path)
    assert len(files.problems) == 100
    assert [p.line for p in files.problems] == [4 + 5 * i for i in range(50)] + [4 + i for i in range(50)]
    assert sum(sizes) <= 2 * (len(text) + (tmp_path / "b.yaml").stat().st_size)


def test_unchanged_documents_are_not_decoded_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(misspelled_services(20))
    files = ConfigFolder(tmp_path)
    decoded: list[str] = []

    def record(plain: Any, *arguments: Any) -> Any:
        decoded.append(plain["metadata"]["name"])
        return decode_document(plain, *arguments)

    monkeypatch.setattr(reading, "decode_document", record)
    files.write("a.yaml", service("first") + "---\n" + misspelled_services(20))
    files.notify("a.yaml")
    assert decoded == ["first", "s0"]  # the first document of a file has no separator before it
    assert files.services == {"first": 80}
    assert [p.line for p in files.problems] == [9 + 5 * i for i in range(20)]
    (tmp_path / "a.yaml").unlink()
    files.notify("a.yaml")
    files.write("a.yaml", misspelled_services(2))
    files.notify("a.yaml")
    assert decoded[2:] == ["s0", "s1"]


async def test_files_are_read_in_a_thread(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = WatchedFolder(tmp_path)
    threads: list[threading.Thread] = []

    def record(plain: Any, *arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return decode_document(plain, *arguments)

    monkeypatch.setattr(reading, "decode_document", record)
    await folder.source.start()
    (tmp_path / "a.yaml").write_text(service("a"))
    await folder.until({"a": 80})
    await folder.source.stop()
    assert threads
    assert threading.main_thread() not in threads


async def test_watch_survives_an_internal_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = WatchedFolder(tmp_path)
    await folder.source.start()
    real, failed = FileSource._scan_paths, asyncio.Event()

    def fail(source: FileSource, paths: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        return real(source, paths)

    monkeypatch.setattr(FileSource, "_scan_paths", fail)
    (tmp_path / "a.yaml").write_text(service("a"))
    async with asyncio.timeout(20):
        await failed.wait()
    (tmp_path / "b.yaml").write_text(service("b"))
    async with asyncio.timeout(20):
        while "b" not in folder.ports():
            await asyncio.sleep(0.01)
    await folder.source.stop()


# -- chunked text ----------------------------------------------------------------------------------------------------------

LINES = [
    "---",
    "--- ",
    "a: 1",
    "- x",
    "...",
    "# y",
    "--- a",
    "---b",
    " ---",
    "'",
    "|",
    "b: |\n  ---",
    "",
    "%YAML 1.1",
    "k: &x 1",
    "l: *x",
    "é: \x85",
]


def outcome(reader: Any, *args: Any) -> Any:
    try:
        return [(d.plain, d.line, d.repeated) for d in reader(*args)]
    except SyntaxFault:
        return "fault"


def test_chunked_text_reads_like_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    faults = pieces = 0
    for _ in range(3000):
        text = "\n".join(rng.choice(LINES) for _ in range(rng.randint(1, 9))).encode()
        chunks = list(split(text))
        assert b"".join(chunk.text for chunk in chunks) == text
        whole = outcome(read_chunk, Chunk(text, 0))
        assert outcome(read_documents, text, "a.yaml") == whole, f"PYISTIOD_SEED={seed}: {text!r}"
        faults += whole == "fault"
        pieces += len(chunks) > 1
    assert faults > 100
    assert pieces > 800


def test_utf_16_text_is_one_chunk() -> None:
    text = "a: 1\n---\na: 2\n".encode("utf-16")
    assert len(list(split(text))) == 1
    assert [d.plain for d in read_documents(text, "a.yaml")] == [{"a": 1}, {"a": 2}]


# -- reporting ------------------------------------------------------------------------------------------------------------


def test_object_name_cannot_forge_a_log_line(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "a\n2026-01-01T00:00:00Z\tinfo\tforged"
    (tmp_path / "a.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name + "x" * 5000}})
    )
    with caplog.at_level("INFO", "pilot.config"):
        files = ConfigFolder(tmp_path)
        for problem in files.problems:
            log_problem(problem)
    assert files.codes == ["bad-name"]
    (message,) = (record.getMessage() for record in caplog.records)
    assert "\n" not in message
    assert "\t" not in message
    assert len(message) < 2_100


def test_problems_above_the_limit_are_summarised_per_file(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[Problem] = []
    store = ProblemStore(reported.append)
    problems = [Problem(code="x", message=str(i)) for i in range(MAX_REPORTED + 5)]
    with caplog.at_level("INFO", "pilot.config"):
        store.replace(("files", "a.yaml"), [Problem(code="y", message=str(i)) for i in range(MAX_REPORTED)])
        assert len(reported) == MAX_REPORTED
        assert not caplog.records
        store.replace(("files", "b.yaml"), problems)
    assert reported[MAX_REPORTED:] == problems[:MAX_REPORTED]
    assert [record.getMessage() for record in caplog.records] == [
        "5 more new problems in b.yaml; see /debug/problemz for all of them"
    ]
    assert len(store) == 2 * MAX_REPORTED + 5
    store.replace(("files", "b.yaml"), problems[1:])
    assert len(reported) == 2 * MAX_REPORTED


@pytest.mark.parametrize(("first", "promise"), [("{", ""), (service("a"), "; its last valid objects stay in force")])
def test_only_valid_objects_are_said_to_stay(tmp_path: pathlib.Path, first: str, promise: str) -> None:
    (tmp_path / "a.yaml").write_text(first)
    files = ConfigFolder(tmp_path)
    files.write("a.yaml", "kind: [a\n")
    files.notify("a.yaml")
    fault = "close every { and [, and quote texts that contain { } [ ] or ,"
    assert [p.message.partition("; ")[2] for p in files.problems] == [f"{fault}{promise}"]


def test_unreadable_folder_without_objects_promises_nothing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    files = ConfigFolder(folder)
    folder.rmdir()
    files.source.rescan()
    files.settle()
    assert [p.message for p in files.problems] == ["No such file or directory"]


def test_moved_configuration_folder_is_a_problem_until_it_is_back(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "a.yaml").write_text(service("a"))
    files = ConfigFolder(folder)
    folder.rename(tmp_path / "away")
    files.source.rescan()
    files.settle()
    assert (files.services, [(p.code, p.file, p.message) for p in files.problems]) == (
        {"a": 80},
        [
            (
                "unreadable-folder",
                str(folder),
                "No such file or directory; the last valid objects of its files stay in force",
            )
        ],
    )
    (tmp_path / "away").rename(folder)
    files.source.rescan()
    files.settle()
    assert (files.services, files.codes) == ({"a": 80}, [])
