"""Worker processes, and the supervisors that fork them.

A supervisor imports a program, loads its state and forks a worker, which runs one job after another. If a job exceeds a
limit or crashes, only the worker ends. The supervisor reports this and forks another worker within milliseconds.
Supervisors never read jobs. They have a single thread, so it is safe to fork them.

    python -m pilot.lib.workers.worker MODULE FILE_DESCRIPTOR…

Each file descriptor is a socket, which gets its own supervisor and worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import mmap
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Protocol

from pilot.lib.workers.frames import (
    CPU_EXCEEDED,
    CRASHED,
    HEADER,
    LARGEST_RESULT,
    MEMORY_EXCEEDED,
    RESULT,
    STATE,
    Header,
    decode_header,
    encode_header,
)

NICENESS = 10
"""Niceness of all workers except the first, which runs short jobs."""
KEPT_MEMORY = 20 << 20
"""Bytes by which a worker may have grown after a job. A larger worker is replaced, which frees its memory."""
COLLECTION_THRESHOLD = 100_000
"""Number of new objects after which a worker collects garbage. A job creates few reference cycles, and many objects."""
_PAGE = resource.getpagesize()
_LONGEST_NUMBER = 20
_CLOSED, _STATE_WAITS, _REPLACE, _OUT_OF_MEMORY = 0, 100, 101, 102  # exit codes of workers
_WAITING, _RUNNING, _TRANSFERRING = range(3)  # phases of a worker: between jobs, in a job, and within a frame


class WorkerProgram(Protocol):
    """A program for workers. Its module has the function `create_program`, which returns it."""

    def load(self, state: bytes) -> None:
        """Replace the state. This runs in the supervisor, without limits, and every later worker has the state."""

    def run(self, job: bytes) -> bytes:
        """Return the result of a job. Raise MemoryError if it takes too much memory."""


def main() -> None:
    """Run until all sockets are closed."""
    module, *descriptors = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the kernel ends workers before their parent
    program: WorkerProgram = importlib.import_module(module).create_program()
    connections = [socket.socket(fileno=int(descriptor)) for descriptor in descriptors]
    for connection in connections[1:]:
        if not os.fork():
            _keep_only(connection, connections)
            os.nice(NICENESS)
            supervise(connection, program)
            os._exit(0)
    _keep_only(connections[0], connections)
    supervise(connections[0], program)


def _keep_only(connection: socket.socket, connections: list[socket.socket]) -> None:
    for other in connections:
        if other is not connection:
            other.close()


def supervise(connection: socket.socket, program: WorkerProgram) -> None:
    """Fork workers, one at a time, until the connection is closed or a worker ends during the transfer of a frame."""
    phase = mmap.mmap(-1, 1)  # shared with the worker
    code = _REPLACE
    while code != _CLOSED:
        gc.collect()
        gc.freeze()  # collections in workers would copy the pages of all objects
        phase[0] = _WAITING
        code = _exit_code(lambda: work(connection, program, phase))
        if code == _STATE_WAITS:
            _, state = _read_frame(connection)
            program.load(state)
        elif phase[0] == _RUNNING:
            _send(connection, *_ending(code))
        elif phase[0] == _TRANSFERRING:
            return


def _exit_code(run: Callable[[], int]) -> int:
    """Run a function in a child process, and return its exit code, or the negative number of the signal that ended
    it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _ending(code: int) -> tuple[bytes, bytes]:
    """Return the frame that reports the end of a worker."""
    if code == -signal.SIGPROF:
        return CPU_EXCEEDED, b""
    if code == _OUT_OF_MEMORY:
        return MEMORY_EXCEEDED, b""
    return CRASHED, (signal.Signals(-code).name if code < 0 else f"exit code {code}").encode()


def work(connection: socket.socket, program: WorkerProgram, phase: mmap.mmap) -> int:
    """Run jobs until a new state arrives, or until a job makes it necessary to replace this process. Return the exit
    code."""
    gc.set_threshold(COLLECTION_THRESHOLD)
    sizes = os.open("/proc/self/statm", os.O_RDONLY)
    initial_size = _virtual_size(sizes)
    limit = 0
    while kind := connection.recv(1, socket.MSG_PEEK):
        if kind == STATE:
            return _STATE_WAITS
        phase[0] = _TRANSFERRING
        header, job = _read_frame(connection)
        phase[0] = _RUNNING
        if header.memory != limit:
            limit = header.memory
            _limit_memory(initial_size + limit)
        try:
            signal.setitimer(signal.ITIMER_PROF, header.cpu)  # SIGPROF ends this process
            result = program.run(job)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        except MemoryError:
            return _OUT_OF_MEMORY
        if len(result) > LARGEST_RESULT:
            return _OUT_OF_MEMORY
        phase[0] = _TRANSFERRING
        _send(connection, RESULT, result)
        phase[0] = _WAITING
        del job, result
        if _virtual_size(sizes) - initial_size > KEPT_MEMORY:
            return _REPLACE
    return _CLOSED


def _limit_memory(size: int) -> None:
    """Limit the address space of this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _virtual_size(sizes: int) -> int:
    """Return the size of this process's address space in bytes. `sizes` is the file descriptor of /proc/self/statm."""
    return int(os.pread(sizes, _LONGEST_NUMBER, 0).split()[0]) * _PAGE


def _read_frame(connection: socket.socket) -> tuple[Header, bytes]:
    header = decode_header(_read(connection, HEADER.size))
    return header, _read(connection, header.size)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the connection was closed within a frame")
        view = view[count:]
    return bytes(data)


def _send(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next read reports the end
        # The payload is not copied, because the copy could exceed the limit of memory.
        sent = connection.sendmsg([encode_header(kind, len(payload)), payload])
        connection.sendall(memoryview(payload)[sent - HEADER.size :])


if __name__ == "__main__":
    main()
