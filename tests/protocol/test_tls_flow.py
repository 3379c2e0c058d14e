"""Bytes between two sockets, and how many handshakes are under way, step by step without a network."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from pilot.xds.tls import front as front_module
from pilot.xds.tls.flow import Flow
from pilot.xds.tls.front import CROWDED_HANDSHAKE_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_HANDSHAKES, TlsFront


class Loop:
    """Who is to be called when a socket can be read or written."""

    def __init__(self) -> None:
        self.readers: dict[Any, Any] = {}
        self.writers: dict[Any, Any] = {}
        self.timers: list[tuple[float, Any]] = []

    def add_reader(self, one: Any, callback: Any, *args: Any) -> None:
        self.readers[one] = (callback, *args)

    def add_writer(self, one: Any, callback: Any, *args: Any) -> None:
        self.writers[one] = (callback, *args)

    def remove_reader(self, one: Any) -> None:
        self.readers.pop(one, None)

    def remove_writer(self, one: Any) -> None:
        self.writers.pop(one, None)

    def call_later(self, delay: float, callback: Any, *args: Any) -> Any:
        self.timers.append((delay, callback))
        return SimpleNamespace(cancel=self.timers.clear)


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


# -- the port --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(
        front_module, "asyncio", SimpleNamespace(get_running_loop=lambda: made, TimerHandle=asyncio.TimerHandle)
    )
    return made


class Shaking:
    """A handshake that is under way."""

    def __init__(self, front: TlsFront, number: int) -> None:
        self.name, self._front, self.number = "", front, number

    def close(self) -> None:
        self._front._on_close(self)


class Listening:
    """A port to which somebody always comes, or an error."""

    def __init__(self, *errors: OSError) -> None:
        self.errors, self.closed = list(errors), False

    def accept(self) -> tuple[Any, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return object(), ("10.0.0.1", 5)

    def close(self) -> None:
        self.closed = True


def full_front(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, *errors: OSError
) -> tuple[TlsFront, Listening, list[float]]:
    """A front to which connections come, at the time that is in the list; each begins a handshake and sends nothing more."""
    times, listening = [0.0], Listening(*errors)
    front = TlsFront(lambda: times[0])
    front._listeners = [listening]

    def accepted(_: socket.socket, __: Any) -> None:
        front._handshakes[Shaking(front, len(front._handshakes))] = times[0]  # type: ignore[index]

    monkeypatch.setattr(front, "_start_handshake", accepted)
    front._accept_from(listening)  # type: ignore[arg-type]
    return front, listening, times


def test_so_many_handshakes_are_under_way_at_once_and_more_once_half_are_over(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, listening, _ = full_front(loop, monkeypatch)
    assert list(loop.readers) == [listening]
    front._accept(listening)  # type: ignore[arg-type]
    assert (len(front._handshakes), front._is_full, loop.readers) == (MAX_HANDSHAKES, True, {})
    front._accept_from(listening)  # type: ignore[arg-type]
    assert loop.readers == {}
    for left in range(MAX_HANDSHAKES - 1, MAX_HANDSHAKES // 2 - 1, -1):
        assert (front._is_full, loop.readers) == (True, {})
        connection = next(iter(front._handshakes))
        (front._on_close if left % 2 else front._on_open)(connection)
        assert len(front._handshakes) == left
    assert (front._is_full, list(loop.readers)) == (False, [listening])
    loop.readers.clear()
    front._on_close(next(iter(front._handshakes)))
    assert loop.readers == {}, "it was told so once"


def test_nothing_is_accepted_for_a_moment_where_there_are_no_more_files(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, listening, _ = full_front(loop, monkeypatch, ConnectionAbortedError(), OSError("too many open files"))
    front._accept(listening)  # type: ignore[arg-type]
    assert (list(loop.readers), loop.timers, len(front._handshakes)) == ([listening], [], 0)
    front._accept(listening)  # type: ignore[arg-type]
    assert (loop.readers, [delay for delay, _ in loop.timers], front._is_full) == ({}, [0.5], False)
    loop.timers[0][1](listening)
    assert list(loop.readers) == [listening]
    front.stop_accepting()
    assert (loop.readers, listening.closed, front._listeners) == ({}, True, [])
    loop.timers[0][1](listening)
    assert loop.readers == {}, "the port is closed"


@pytest.mark.parametrize(("is_full", "seconds"), [(False, HANDSHAKE_TIMEOUT), (True, CROWDED_HANDSHAKE_TIMEOUT)])
def test_handshakes_that_take_long_are_ended_sooner_where_others_wait(
    is_full: bool, seconds: float, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, _, times = full_front(loop, monkeypatch)
    for begun in (0.0, 1.0, 2.0):
        front._handshakes[Shaking(front, int(begun))] = begun  # type: ignore[index]
    left = []
    for now in (seconds - 0.5, seconds, seconds + 1.0):
        times[0], front._is_full = now, is_full
        front._sweep()
        left.append([one.number for one in front._handshakes])  # type: ignore[attr-defined]
    assert left == [[0, 1, 2], [1, 2], [2]]
    assert [delay for delay, _ in loop.timers] == [1.0] * 3
    front.close()
    assert (front._handshakes, loop.timers) == ({}, []), (
        "what was under way is ended, and nothing is looked at any more"
    )


def test_a_port_that_never_listened_can_be_closed(loop: Loop) -> None:
    front = TlsFront()
    front.close()
    assert loop.timers == []
