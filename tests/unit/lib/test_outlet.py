"""Asynchronous log output: drops instead of blocking, escaping and truncation."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
import threading
from collections.abc import Iterator

import pytest

from pilot.lib.logging import log
from pilot.lib.logging.outlet import Outlet, open_target
from pilot.lib.metrics.metrics import Metrics

LINE = "x" * 999  # 1000 bytes with the newline
DROPPED = re.compile(r"dropped (\d+) log lines: the log was not read fast enough")
PIPE = 1 << 16  # capacity of a pipe in bytes


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for descriptor in (read_end, write_end):
        os.close(descriptor)


def record(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "pilot", "levelno": logging.INFO, "msg": text})


def read(descriptor: int, ending: bytes) -> bytes:
    data = b""
    while not data.endswith(ending):
        data += os.read(descriptor, PIPE)
    return data


def test_stalled_reader_blocks_no_writer_and_drops_are_counted(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    metrics = Metrics()
    outlet = Outlet(write_end, 100_000, metrics.log_lines_dropped)
    count = 1000
    for _ in range(count):
        outlet.handle(record(LINE))  # would block forever if it waited for the reader
    exposed = next(
        line for line in metrics.exposition().decode().splitlines() if line.startswith("pilot_log_lines_dropped ")
    )
    dropped = int(exposed.split()[1])
    capacity = (100_000 + 100_000 + PIPE) // 1000  # the queue, the write in progress, and the pipe
    assert count - capacity <= dropped < count
    reported, line_count = 0, 0
    while reported + line_count < count:
        for line in read(read_end, b"\n").decode().splitlines():
            match = DROPPED.fullmatch(line)
            reported += int(match[1]) if match else 0
            line_count += line == LINE
    assert (reported, line_count) == (dropped, count - dropped), "every line is written or reported as dropped"
    outlet.handle(record("again"))
    assert read(read_end, b"again\n") == b"again\n"
    outlet.close()


def test_failed_writes_are_counted_as_dropped() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    dropped = threading.Event()
    outlet = Outlet(full, on_drop=lambda count: dropped.set())
    outlet.handle(record("one"))
    assert dropped.wait(30)
    outlet.close()
    os.close(full)


def test_non_blocking_descriptor(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    os.set_blocking(write_end, False)
    outlet = Outlet(write_end)
    for _ in range(200):
        outlet.handle(record(LINE))
    outlet.handle(record("end"))
    assert len(read(read_end, b"end\n").splitlines()) == 201
    outlet.close()


def test_close_flushes_the_queue(tmp_path: pathlib.Path) -> None:
    outlet = Outlet(open_target(str(tmp_path / "log")))
    for number in range(100):
        outlet.handle(record(str(number)))
    outlet.close()
    assert (tmp_path / "log").read_text().split() == [str(number) for number in range(100)]


def test_log_file_is_appended_to(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").write_text("before\n")
    log.configure("info", False, [str(tmp_path / "log")])
    log.scope("ads").info("after")
    log.scope("default").handlers[0].flush()
    assert (tmp_path / "log").read_text().startswith("before\n2")


FORGED_TEXT = "node\n2026-01-02T03:04:05.000006Z\tinfo\tads\tall is well\x1b[2K\r\u2028x\udcff"


def log_lines(tmp_path: pathlib.Path, as_json: bool, text: object, error: Exception | None = None) -> list[str]:
    log.configure("info", as_json, [str(tmp_path / "log")])
    log.scope("ads").error("it said %s", text, exc_info=error)
    log.scope("default").handlers[0].flush()
    return (tmp_path / "log").read_text().split("\n")[:-1]


def test_arguments_cannot_forge_a_line(tmp_path: pathlib.Path) -> None:
    (line,) = log_lines(tmp_path, False, FORGED_TEXT)
    assert line.endswith(r"it said node\n2026-01-02T03:04:05.000006Z\tinfo\tads\tall is well\x1b[2K\r\u2028x\xff")
    assert line.count("\t") == 3


def test_traceback_cannot_forge_a_line(tmp_path: pathlib.Path) -> None:
    first, *others = log_lines(tmp_path, False, "x", ValueError(FORGED_TEXT))
    assert first.endswith("\tit said x")
    assert others
    assert all(line.startswith("  ") for line in others)


def test_json_cannot_be_forged(tmp_path: pathlib.Path) -> None:
    (line,) = log_lines(tmp_path, True, FORGED_TEXT, ValueError(FORGED_TEXT))
    assert json.loads(line)["msg"] == f"it said {FORGED_TEXT}"


def test_long_arguments_are_cut(tmp_path: pathlib.Path) -> None:
    (line,) = log_lines(tmp_path, False, "y" * 5_000_000)
    assert "y" * 1000 + "… (4999000 more characters)" in line
    assert len(line) < 1200


class Endless:
    def __str__(self) -> str:
        return "z" * 5_000_000


def test_long_messages_are_cut(tmp_path: pathlib.Path) -> None:
    (line,) = log_lines(tmp_path, False, Endless())
    assert len(line) < 8200


def test_long_tracebacks_are_cut_and_keep_the_error(tmp_path: pathlib.Path) -> None:
    lines = log_lines(tmp_path, False, "x", ValueError("w" * 5_000_000 + " the end"))
    assert sum(map(len, lines)) < 20_000
    assert lines[-1].endswith("the end")


def test_named_arguments(tmp_path: pathlib.Path) -> None:
    log.configure("info", False, [str(tmp_path / "log")])
    log.scope("default").info("%(a)s and %(b)s", {"a": 1, "b": 2})
    log.scope("default").info("100 % without arguments")
    log.scope("default").handlers[0].flush()
    assert [line.split("\t")[2] for line in (tmp_path / "log").read_text().splitlines()] == [
        "1 and 2",
        "100 % without arguments",
    ]
