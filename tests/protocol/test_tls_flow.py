"""Flows of bytes between two sockets, in steps and without a network."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from pilot.xds.tls.flow import Flow


class FakeLoop:
    """An event loop that only records the callbacks of sockets."""

    def __init__(self) -> None:
        self.readers: dict[Any, Any] = {}
        self.writers: dict[Any, Any] = {}

    def add_reader(self, sock: Any, callback: Any, *args: Any) -> None:
        self.readers[sock] = (callback, *args)

    def add_writer(self, sock: Any, callback: Any, *args: Any) -> None:
        self.writers[sock] = (callback, *args)

    def remove_reader(self, sock: Any) -> None:
        self.readers.pop(sock, None)

    def remove_writer(self, sock: Any) -> None:
        self.writers.pop(sock, None)


class FakeSocket:
    """Each read returns the next item of `chunks`, and each write accepts the next count of `capacities`. Errors are raised."""

    def __init__(
        self, chunks: tuple[bytes | Exception, ...] = (), capacities: tuple[int | Exception, ...] = ()
    ) -> None:
        self.chunks, self.capacities, self.output = list(chunks), list(capacities), b""

    def recv_into(self, buffer: bytearray, size: int) -> int:
        chunk = self.chunks.pop(0)
        if isinstance(chunk, Exception):
            raise chunk
        assert len(chunk) <= size == len(buffer)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def send(self, data: bytes | memoryview) -> int:
        count = self.capacities.pop(0)
        if isinstance(count, Exception):
            raise count
        self.output += bytes(data[:count])
        return min(count, len(data))


def make_flow(source: FakeSocket, target: FakeSocket) -> tuple[FakeLoop, list[str], Flow]:
    loop, endings = FakeLoop(), list[str]()
    return loop, endings, Flow(loop, source, target, lambda: endings.append("ended"))  # type: ignore[arg-type]


def test_bytes_are_forwarded_at_once_while_the_target_accepts_them() -> None:
    source, target = FakeSocket((b"abc", ssl.SSLWantReadError(), BlockingIOError(), b"de")), FakeSocket((), (100, 2))
    loop, endings, stream = make_flow(source, target)
    assert loop.readers == {}
    stream.start()
    for _ in range(4):
        loop.readers[source][0]()
    assert (target.output, list(loop.readers), loop.writers, endings) == (b"abcde", [source], {}, [])


@pytest.mark.parametrize("first_capacity", [2, 0, ssl.SSLWantWriteError(), BlockingIOError()])
def test_reading_pauses_while_the_target_is_blocked(first_capacity: int | Exception) -> None:
    source, target = FakeSocket((b"abcdef", b"g")), FakeSocket((), (first_capacity, InterruptedError(), 1, 100, 100))
    loop, endings, stream = make_flow(source, target)
    stream.start()
    loop.readers[source][0]()
    assert (list(loop.readers), list(loop.writers)) == ([], [target])
    for _ in range(2):
        loop.writers[target][0]()
        assert (list(loop.readers), list(loop.writers)) == ([], [target])
    loop.writers[target][0]()
    assert (target.output, list(loop.readers), list(loop.writers)) == (b"abcdef", [source], [])
    loop.readers[source][0]()
    assert (target.output, endings) == (b"abcdefg", [])


@pytest.mark.parametrize(
    ("source", "target", "steps"),
    [
        (FakeSocket((b"",)), FakeSocket(), "r"),
        (FakeSocket((ConnectionResetError(),)), FakeSocket(), "r"),
        (FakeSocket((ssl.SSLError(),)), FakeSocket(), "r"),
        (FakeSocket((b"a",)), FakeSocket((), (BrokenPipeError(),)), "r"),
        (FakeSocket((b"ab",)), FakeSocket((), (1, BrokenPipeError())), "rw"),
    ],
)
def test_flow_ends_with_either_side(source: FakeSocket, target: FakeSocket, steps: str) -> None:
    loop, endings, stream = make_flow(source, target)
    stream.start()
    for step in steps:
        assert endings == []
        (loop.readers[source] if step == "r" else loop.writers[target])[0]()
    assert endings == ["ended"]
