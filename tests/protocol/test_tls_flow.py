"""Flows of bytes between two sockets, step by step without a network."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from pilot.xds.tls.flow import Flow


class Loop:
    """An event loop that only remembers the callbacks of sockets."""

    def __init__(self) -> None:
        self.readers: dict[Any, Any] = {}
        self.writers: dict[Any, Any] = {}

    def add_reader(self, one: Any, callback: Any, *args: Any) -> None:
        self.readers[one] = (callback, *args)

    def add_writer(self, one: Any, callback: Any, *args: Any) -> None:
        self.writers[one] = (callback, *args)

    def remove_reader(self, one: Any) -> None:
        self.readers.pop(one, None)

    def remove_writer(self, one: Any) -> None:
        self.writers.pop(one, None)


class Socket:
    """Gives what `given` has, and takes as many bytes as `takes` says, time after time; an error is raised."""

    def __init__(self, given: tuple[bytes | Exception, ...] = (), takes: tuple[int | Exception, ...] = ()) -> None:
        self.given, self.takes, self.taken = list(given), list(takes), b""

    def recv_into(self, buffer: bytearray, size: int) -> int:
        found = self.given.pop(0)
        if isinstance(found, Exception):
            raise found
        assert len(found) <= size == len(buffer)
        buffer[: len(found)] = found
        return len(found)

    def send(self, data: bytes | memoryview) -> int:
        count = self.takes.pop(0)
        if isinstance(count, Exception):
            raise count
        self.taken += bytes(data[:count])
        return min(count, len(data))


def flow(source: Socket, target: Socket) -> tuple[Loop, list[str], Flow]:
    loop, ended = Loop(), list[str]()
    return loop, ended, Flow(loop, source, target, lambda: ended.append("ended"))  # type: ignore[arg-type]


def test_bytes_pass_at_once_while_they_are_taken() -> None:
    source, target = Socket((b"abc", ssl.SSLWantReadError(), BlockingIOError(), b"de")), Socket((), (100, 2))
    loop, ended, made = flow(source, target)
    assert loop.readers == {}
    made.start()
    for _ in range(4):
        loop.readers[source][0]()
    assert (target.taken, list(loop.readers), loop.writers, ended) == (b"abcde", [source], {}, [])


@pytest.mark.parametrize("first", [2, 0, ssl.SSLWantWriteError(), BlockingIOError()])
def test_what_is_not_taken_waits_and_nothing_is_read_meanwhile(first: int | Exception) -> None:
    source, target = Socket((b"abcdef", b"g")), Socket((), (first, InterruptedError(), 1, 100, 100))
    loop, ended, made = flow(source, target)
    made.start()
    loop.readers[source][0]()
    assert (list(loop.readers), list(loop.writers)) == ([], [target])
    for _ in range(2):
        loop.writers[target][0]()
        assert (list(loop.readers), list(loop.writers)) == ([], [target])
    loop.writers[target][0]()
    assert (target.taken, list(loop.readers), list(loop.writers)) == (b"abcdef", [source], [])
    loop.readers[source][0]()
    assert (target.taken, ended) == (b"abcdefg", [])


@pytest.mark.parametrize(
    ("source", "target", "steps"),
    [
        (Socket((b"",)), Socket(), "r"),
        (Socket((ConnectionResetError(),)), Socket(), "r"),
        (Socket((ssl.SSLError(),)), Socket(), "r"),
        (Socket((b"a",)), Socket((), (BrokenPipeError(),)), "r"),
        (Socket((b"ab",)), Socket((), (1, BrokenPipeError())), "rw"),
    ],
)
def test_a_connection_ends_with_either_side(source: Socket, target: Socket, steps: str) -> None:
    loop, ended, made = flow(source, target)
    made.start()
    for step in steps:
        assert ended == []
        (loop.readers[source] if step == "r" else loop.writers[target])[0]()
    assert ended == ["ended"]
