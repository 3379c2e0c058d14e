"""What can happen to files while they are read: none of it stops the process, or what the other files say."""

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
from pilot.debug.configuration import problemz
from pilot.ingest import file_decoder as reading
from pilot.ingest import file_source
from pilot.ingest.batch import Batch
from pilot.ingest.chunks import Chunk, split
from pilot.ingest.decode import decode_document
from pilot.ingest.documents import SyntaxFault, read_chunk, read_documents
from pilot.ingest.file_io import NoFile, TooLarge, read_file
from pilot.ingest.file_source import FileSource
from pilot.ingest.folder import UNKNOWN, Signature, shown, sign, valid_parent
from pilot.ingest.ledger import Ledger
from pilot.ingest.mesh_files import MeshFiles
from pilot.ingest.problems import MAX_REPORTED, ProblemStore, log_problem
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import Files, service
from testing.mesh.clock import VirtualClock
from testing.mesh.debug_server import sources

# -- a pipe or a device in the place of a file -----------------------------------------------------------------------------


def test_a_pipe_swapped_in_between_looking_and_opening_does_not_hang(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    files = Files(tmp_path)
    assert sign(str(tmp_path / "a.yaml")) is not None
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    assert sign(str(tmp_path / "a.yaml")) is None
    monkeypatch.setattr("pilot.ingest.folder.sign", lambda path: Signature(1, 1, 1))
    files.write("b.yaml", service("b", 81))
    files.tell("a.yaml", "b.yaml")
    assert files.services == {"b": 81}


def test_a_device_is_not_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NoFile):
        read_file("/dev/zero", 10)
    with pytest.raises(NoFile):
        read_file(str(tmp_path), 10)
    assert sign("/dev/zero") is None


# -- faults that pass ------------------------------------------------------------------------------------------------------


def refuse(number: int) -> Any:
    def fault(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fault


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["os.open", "os.stat"])
def test_a_read_that_failed_for_a_passing_reason_is_tried_again(
    call: str, number: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    files = Files(tmp_path)
    path = files.write("a.yaml", service("a", 81))
    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse(number))
        if call == "os.stat":
            patched.setattr("os.stat", refuse(number))
            assert sign(str(path)) == UNKNOWN
        for _ in range(3):
            files.source.changed([str(path)])
            files.source.retry()
        files.quiet()
        assert (files.services, files.codes) == ({"a": 80}, ["unreadable-file"])
    files.source.retry()
    files.quiet()
    assert (files.services, files.codes) == ({"a": 81}, [])


def test_a_file_that_could_not_be_read_is_read_by_the_next_look_at_the_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse(errno.EMFILE))
        files = Files(tmp_path)
    assert files.services == {}
    files.source.rescan()
    files.quiet()
    assert (files.services, files.codes) == ({"a": 80}, [])


def test_a_folder_that_could_not_be_read_is_tried_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.yaml").write_text(service("a"))
    real = os.scandir
    with monkeypatch.context() as patched:
        patched.setattr("os.scandir", lambda path: refuse(errno.EMFILE)() if path.endswith("x") else real(path))
        files = Files(tmp_path)
        files.source.retry()
        assert (files.services, files.codes) == ({}, ["unreadable-folder"])
    files.source.retry()
    files.quiet()
    assert (files.services, files.codes) == ({"a": 80}, [])


class Live:
    """A folder that is followed by the kernel's notifications."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.mesh, self.problems = Mesh(), ProblemStore(lambda _: None)
        self.batch = Batch(
            self.mesh, asyncio.get_running_loop(), parse_duration("1ms"), parse_duration("1s"), lambda _: None
        )
        self.source = FileSource(str(folder), self.batch, Ledger(self.problems).source(0, "files"))
        self.source.load_initial()
        self.batch.flush()

    def ports(self) -> dict[str, int]:
        return {key.name: o.spec.ports[0].port for key, o in SERVICE.table(self.mesh).rows()}

    async def until(self, ports: dict[str, int]) -> None:
        async with asyncio.timeout(20):
            while self.ports() != ports:
                await asyncio.sleep(0.01)


async def test_who_follows_a_folder_tries_again_by_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source, "_RETRY", 0.01)
    (tmp_path / "a.yaml").write_text(service("a"))
    with monkeypatch.context() as patched:
        patched.setattr("pilot.ingest.file_source.read_file", refuse(errno.EMFILE))
        live = Live(tmp_path)
        await live.source.start()
        await asyncio.sleep(0)
        assert live.ports() == {}
    await live.until({"a": 80})
    await live.source.stop()


def test_a_mesh_config_that_could_not_be_read_is_tried_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, problems = Mesh(), ProblemStore(lambda _: None)
    batch = Batch(mesh, VirtualClock(), parse_duration("1ms"), parse_duration("1s"), lambda _: None)
    (tmp_path / "mesh").write_text("trustDomain: a.example\n")
    files = MeshFiles(str(tmp_path / "mesh"), str(tmp_path / "networks"), batch, problems)
    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse(errno.EMFILE))
        files.load_initial()
        batch.flush()
    assert mesh.mesh.peek("mesh").trust_domain == "cluster.local"
    assert [p.code for p in problems] == ["unreadable-file"] * 2
    files.retry()
    batch.flush()
    assert mesh.mesh.peek("mesh").trust_domain == "a.example"
    assert list(problems) == []


async def test_the_folder_of_the_mesh_config_may_come_later(tmp_path: pathlib.Path) -> None:
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


# -- a file that cannot be taken -------------------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_a_problem_of_its_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    files = Files(tmp_path, limit=1000)
    files.write("a.yaml", service("a", 81) + "#" * 1000)
    files.write("b.yaml", service("b", 81))
    files.tell("a.yaml", "b.yaml")
    assert files.services == {"a": 80, "b": 81}
    assert [(p.code, p.file) for p in files.problems] == [("file-too-large", str(tmp_path / "a.yaml"))]
    files.write("a.yaml", service("a", 81))
    files.tell("a.yaml")
    assert (files.services, files.codes) == ({"a": 81, "b": 81}, [])


def test_a_file_of_just_the_limit_is_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    data, signature = read_file(str(tmp_path / "a"), 100)
    assert (data, signature) == (b"x" * 100, sign(str(tmp_path / "a")))
    with pytest.raises(TooLarge):
        read_file(str(tmp_path / "a"), 99)


@pytest.mark.parametrize("fault", [MemoryError(), RecursionError("deep"), ValueError("x")])
def test_whatever_one_file_raises_is_its_own_problem(
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
    files = Files(tmp_path)
    assert (files.services, files.codes) == ({"good": 80}, ["internal-error"])


def test_a_mesh_config_that_is_too_large_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, problems = Mesh(), ProblemStore(lambda _: None)
    batch = Batch(mesh, VirtualClock(), parse_duration("1ms"), parse_duration("1s"), lambda _: None)
    (tmp_path / "mesh").write_text("trustDomain: a.example\n")
    files = MeshFiles(str(tmp_path / "mesh"), str(tmp_path / "networks"), batch, problems)
    files.load_initial()
    monkeypatch.setattr("pilot.ingest.mesh_files.LARGEST", 100)
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


@pytest.mark.parametrize("told", ["x.yaml", "x.yaml/b.yaml", "."])
def test_a_file_replaced_by_a_folder_of_its_name_and_back_is_followed(told: str, tmp_path: pathlib.Path) -> None:
    files = Files(tmp_path)
    files.write("x.yaml", service("a"))
    files.tell(told if told == "." else "x.yaml")
    assert files.services == {"a": 80}
    (tmp_path / "x.yaml").unlink()
    files.write("x.yaml/b.yaml", service("b"))
    files.tell("x.yaml", told)
    assert files.services == {"b": 80}
    (tmp_path / "x.yaml" / "b.yaml").unlink()
    (tmp_path / "x.yaml").rmdir()
    files.write("x.yaml", service("c"))
    files.tell("x.yaml", told)
    assert files.services == {"c": 80}
    files.write("x.yaml", service("c", 81))
    files.tell("x.yaml")
    assert files.services == {"c": 81}


# -- names that are no UTF-8 -----------------------------------------------------------------------------------------------

STRANGE = os.fsdecode(b"a\xff.yaml")


def test_a_file_whose_name_is_no_utf_8_is_read_and_its_problems_can_be_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / STRANGE).write_text(service("a", 0) + "---\n" + service("b"))
    (tmp_path / "z.yaml").write_text(service("b", 81))
    files = Files(tmp_path)
    assert files.services == {"b": 80}
    assert sorted(p.file for p in files.problems) == [f"{tmp_path}/a\\xff.yaml", f"{tmp_path}/z.yaml"]
    text = json.dumps(problemz(sources(files.mesh, problems=list(files.problems)), {}), ensure_ascii=False)
    assert "a\\\\xff.yaml, which takes precedence" in text.encode().decode()
    assert "\n".join(map(str, files.problems)).encode()


def test_a_change_of_a_name_that_the_kernel_garbles_is_looked_for_in_its_folder(tmp_path: pathlib.Path) -> None:
    files = Files(tmp_path)
    files.write(f"x/{STRANGE}", service("a"))
    files.tell("x/a\N{REPLACEMENT CHARACTER}.yaml")
    assert files.services == {"a": 80}
    assert valid_parent("/x/a\N{REPLACEMENT CHARACTER}/b.yaml") == "/x"
    assert shown(STRANGE) == "a\\xff.yaml"


async def test_a_file_whose_name_is_no_utf_8_is_followed(tmp_path: pathlib.Path) -> None:
    live = Live(tmp_path)
    await live.source.start()
    (tmp_path / STRANGE).write_text(service("a"))
    await live.until({"a": 80})
    (tmp_path / STRANGE).write_text(service("a", 81))
    await live.until({"a": 81})
    await live.source.stop()


# -- what reading costs ----------------------------------------------------------------------------------------------------


def misspelt(count: int) -> str:
    return "---\n".join(service(f"s{i}").replace("port: 80", "prot: 80, port: 0") for i in range(count))


def test_the_lines_of_problems_are_found_by_one_more_look_at_each_document(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading costs the size of the file, not that times the problems in it."""
    parsed: list[int] = []
    real = yaml.parse

    def note(data: bytes, **options: Any) -> Any:
        parsed.append(len(data))
        return real(data, **options)

    monkeypatch.setattr(yaml, "parse", note)
    text = misspelt(50)
    (tmp_path / "a.yaml").write_text(text)
    items = "".join(f"- {json.dumps(next(yaml.safe_load_all(service(f'i{i}', 0))))}\n" for i in range(50))
    (tmp_path / "b.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    files = Files(tmp_path)
    assert len(files.problems) == 100
    assert [p.line for p in files.problems] == [4 + 5 * i for i in range(50)] + [4 + i for i in range(50)]
    assert sum(parsed) <= 2 * (len(text) + (tmp_path / "b.yaml").stat().st_size)


def test_documents_that_did_not_change_are_not_decoded_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(misspelt(20))
    files = Files(tmp_path)
    decoded: list[str] = []

    def note(plain: Any, *rest: Any) -> Any:
        decoded.append(plain["metadata"]["name"])
        return decode_document(plain, *rest)

    monkeypatch.setattr(reading, "decode_document", note)
    files.write("a.yaml", service("first") + "---\n" + misspelt(20))
    files.tell("a.yaml")
    assert decoded == ["first", "s0"]  # what begins a file has no line of dashes before it
    assert files.services == {"first": 80}
    assert [p.line for p in files.problems] == [9 + 5 * i for i in range(20)]
    (tmp_path / "a.yaml").unlink()
    files.tell("a.yaml")
    files.write("a.yaml", misspelt(2))
    files.tell("a.yaml")
    assert decoded[2:] == ["s0", "s1"]


async def test_files_are_read_beside_the_event_loop(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(tmp_path)
    threads: list[threading.Thread] = []

    def note(plain: Any, *rest: Any) -> Any:
        threads.append(threading.current_thread())
        return decode_document(plain, *rest)

    monkeypatch.setattr(reading, "decode_document", note)
    await live.source.start()
    (tmp_path / "a.yaml").write_text(service("a"))
    await live.until({"a": 80})
    await live.source.stop()
    assert threads
    assert threading.main_thread() not in threads


async def test_a_bug_of_ours_does_not_end_the_following(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live(tmp_path)
    await live.source.start()
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
        while "b" not in live.ports():
            await asyncio.sleep(0.01)
    await live.source.stop()


# -- a text in pieces ------------------------------------------------------------------------------------------------------

PARTS = [
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


def outcome(read: Any, *args: Any) -> Any:
    try:
        return [(d.plain, d.line, d.repeated) for d in read(*args)]
    except SyntaxFault:
        return "fault"


def test_a_text_in_pieces_is_what_it_is_as_a_whole(seed: int) -> None:
    chance = random.Random(seed)
    faults = pieces = 0
    for _ in range(3000):
        text = "\n".join(chance.choice(PARTS) for _ in range(chance.randint(1, 9))).encode()
        chunks = list(split(text))
        assert b"".join(chunk.text for chunk in chunks) == text
        whole = outcome(read_chunk, Chunk(text, 0))
        assert outcome(read_documents, text, "a.yaml") == whole, f"PYISTIOD_SEED={seed}: {text!r}"
        faults += whole == "fault"
        pieces += len(chunks) > 1
    assert faults > 100
    assert pieces > 800


def test_a_text_in_wide_characters_is_one_piece() -> None:
    text = "a: 1\n---\na: 2\n".encode("utf-16")
    assert len(list(split(text))) == 1
    assert [d.plain for d in read_documents(text, "a.yaml")] == [{"a": 1}, {"a": 2}]


# -- what is told ----------------------------------------------------------------------------------------------------------


def test_a_name_cannot_forge_a_line_of_the_log(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "a\n2026-01-01T00:00:00Z\tinfo\tforged"
    (tmp_path / "a.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name + "x" * 5000}})
    )
    with caplog.at_level("INFO", "pilot.config"):
        files = Files(tmp_path)
        for problem in files.problems:
            log_problem(problem)
    assert files.codes == ["bad-name"]
    (message,) = (record.getMessage() for record in caplog.records)
    assert "\n" not in message
    assert "\t" not in message
    assert len(message) < 2_100


def test_of_very_many_new_problems_the_first_are_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Problem] = []
    store = ProblemStore(told.append)
    found = [Problem(code="x", message=str(i)) for i in range(MAX_REPORTED + 5)]
    with caplog.at_level("INFO", "pilot.config"):
        store.replace(("files", "a.yaml"), [Problem(code="y", message=str(i)) for i in range(MAX_REPORTED)])
        assert len(told) == MAX_REPORTED
        assert not caplog.records
        store.replace(("files", "b.yaml"), found)
    assert told[MAX_REPORTED:] == found[:MAX_REPORTED]
    assert [record.getMessage() for record in caplog.records] == [
        "5 more new problems in b.yaml; see /debug/problemz for all of them"
    ]
    assert len(store) == 2 * MAX_REPORTED + 5
    store.replace(("files", "b.yaml"), found[1:])
    assert len(told) == 2 * MAX_REPORTED
