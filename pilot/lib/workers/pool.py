"""Runs jobs in worker processes, so that hostile input cannot block or exhaust this process.

A job first runs in a worker for short jobs. If it exceeds the limits there, it runs again in a worker with higher
limits and a lower priority. Therefore, a hostile job delays an ordinary job only by the CPU time limit of the first
run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.lib.workers.frames import (
    CPU_EXCEEDED,
    CRASHED,
    HEADER,
    JOB,
    LARGEST_RESULT,
    MEMORY_EXCEEDED,
    RESULT,
    STATE,
    JobLimits,
    decode_header,
    encode_header,
)
from pilot.lib.workers.job_queue import JobQueue, JobSource

LANES = (JobLimits(0.1, 32 << 20), JobLimits(2.0, 64 << 20))
"""Limits of a job's first and second run. An ordinary admission review takes milliseconds. The review of an object of
1.5 MiB, the largest that etcd stores, takes about half a second and 32 MiB."""
LONGEST_WAIT = 25.0
"""Maximum number of seconds that a job waits for its result. API servers wait at most 30 seconds for an admission
review."""
MIN_LIFETIME = 1.0
"""Minimum number of seconds between two starts of the processes."""
_log = scope("default")


class JobError(Exception):
    """A job has no result. `reason` is a word for metrics: "cpu", "memory", "crash" or "wait"."""

    reason = ""


class JobRunner(Protocol):
    """Runs jobs. A WorkerPool implements this protocol."""

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        """Return the result of a job, which consists of parts. Raise JobError if there is none."""


class LimitExceeded(JobError):
    """A job exceeded a limit of its second run."""


class CpuExceeded(LimitExceeded):
    """A job exceeded its limit of CPU time."""

    reason = "cpu"


class MemoryExceeded(LimitExceeded):
    """A job exceeded its limit of memory."""

    reason = "memory"


class WorkerCrash(JobError):
    """The worker ended during a job, or could not be started."""

    reason = "crash"


class Overload(JobError):
    """No worker was available in time."""

    reason = "wait"


class _Job(NamedTuple):
    caller: JobSource
    parts: Sequence[bytes]
    result: asyncio.Future[bytes]


class _Connection:
    """A connection to one worker, which runs one job at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._state = b""

    async def run(self, state: bytes, parts: Sequence[bytes], limits: JobLimits) -> bytes:
        """Return the result of a job. Raise JobError if there is none, and EOFError or OSError if the supervisor
        ended."""
        if state is not self._state:
            self._writer.write(encode_header(STATE, len(state)) + state)
            self._state = state
        self._writer.writelines((encode_header(JOB, sum(map(len, parts)), limits), *parts))  # in one system call
        await self._writer.drain()
        header = decode_header(await self._reader.readexactly(HEADER.size))
        if header.size > LARGEST_RESULT:
            raise OSError("the result is too large")
        content = await self._reader.readexactly(header.size)
        if header.kind == CPU_EXCEEDED:
            raise CpuExceeded(f"it takes more than {limits.cpu:g} seconds of CPU time")
        if header.kind == MEMORY_EXCEEDED:
            raise MemoryExceeded(f"it takes more than {limits.memory >> 20} MiB of memory")
        if header.kind == CRASHED:
            raise WorkerCrash(f"its worker process ended: {content.decode(errors='replace')}")
        if header.kind != RESULT:
            raise OSError("the worker sent an unknown frame")
        return content

    def close(self) -> None:
        self._writer.close()


class _Processes(NamedTuple):
    """The running workers, and the origin, which is the process from which they are forked. All are in the origin's
    process group."""

    origin: subprocess.Popen[bytes]
    connections: tuple[_Connection, ...]

    async def close(self) -> None:
        """End all processes, and wait for the origin."""
        for connection in self.connections:
            connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.origin.pid, signal.SIGKILL)
        await asyncio.to_thread(self.origin.wait)


async def _start(module: str, count: int) -> _Processes:
    """Start workers. Raise OSError if this fails."""
    pairs = [socket.socketpair() for _ in range(count)]
    try:
        descriptors = [theirs.fileno() for _, theirs in pairs]
        command = [sys.executable, "-P", "-m", "pilot.lib.workers.worker", module, *map(str, descriptors)]
        origin = await asyncio.to_thread(
            subprocess.Popen,
            command,
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,
        )
    except BaseException:
        for ours, _ in pairs:
            ours.close()
        raise
    finally:
        for _, theirs in pairs:
            theirs.close()
    return _Processes(origin, tuple([_Connection(*await asyncio.open_unix_connection(sock=ours)) for ours, _ in pairs]))


class WorkerPool:
    """Worker processes that run the program of a module. They start with the first job, or with `warm`."""

    def __init__(self, module: str, lanes: Sequence[JobLimits] = LANES, longest_wait: float = LONGEST_WAIT) -> None:
        self._module, self._lanes, self._longest_wait = module, lanes, longest_wait
        self._queues: list[JobQueue[_Job]] = [JobQueue() for _ in lanes]
        self._state = b""
        self._processes: _Processes | None = None
        self._starting = asyncio.Lock()
        self._started_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._pending: set[asyncio.Future[bytes]] = set()

    def load(self, state: bytes) -> None:
        """Replace the program's state for all later jobs."""
        self._state = state

    def warm(self) -> None:
        """Start the workers in the background, unless they run."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._run_lane(lane), name=f"worker {lane}") for lane in range(len(self._lanes))
            ]

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        """Return the result of a job. Raise JobError if there is none. The program receives the parts as one string;
        they are not copied while the job waits."""
        self.warm()
        job = _Job(caller, parts, asyncio.get_running_loop().create_future())
        self._queues[0].put(caller, job)
        self._pending.add(job.result)
        try:
            async with asyncio.timeout(self._longest_wait):
                return await job.result
        except TimeoutError:
            raise Overload(f"no worker had time for it within {self._longest_wait:g} seconds") from None
        finally:
            self._pending.discard(job.result)

    async def stop(self) -> None:
        """End the workers. Jobs without a result fail."""
        await cancel_tasks(*self._tasks)
        self._tasks = []
        for result in self._pending:
            if not result.done():
                result.set_exception(WorkerCrash("its worker process was stopped"))
        await self._close(self._processes)

    async def _run_lane(self, lane: int) -> None:
        """Run the jobs of a lane."""
        with contextlib.suppress(OSError):
            await self._get_processes()
        while True:
            await self._run_next(lane)

    async def _run_next(self, lane: int) -> None:
        """Run the next job of a lane. While this waits, nothing holds the previous job and its result."""
        queue = self._queues[lane]
        job = await queue.get()
        started = time.monotonic()
        if not job.result.done():
            await self._run_job(lane, job)
            queue.charge(job.caller, time.monotonic() - started)

    async def _run_job(self, lane: int, job: _Job) -> None:
        try:
            result = await self._attempt(lane, job)
        except JobError as error:
            if isinstance(error, LimitExceeded) and lane + 1 < len(self._lanes):
                self._queues[lane + 1].put(job.caller, job)
            elif not job.result.done():
                job.result.set_exception(error)
        else:
            if not job.result.done():
                job.result.set_result(result)

    async def _attempt(self, lane: int, job: _Job) -> bytes:
        """Return the result of a job. If the processes have ended, start them again once."""
        for _ in range(2):
            processes: _Processes | None = None
            try:
                processes = await self._get_processes()
                return await processes.connections[lane].run(self._state, job.parts, self._lanes[lane])
            except (OSError, EOFError) as error:
                _log.warning("the worker processes ended and are started again: %s", error)
                await self._close(processes)
        raise WorkerCrash("the worker processes ended")

    async def _get_processes(self) -> _Processes:
        """Return the running processes. Start them if necessary. Raise OSError if this fails."""
        async with self._starting:
            if self._processes is None:
                await asyncio.sleep(self._started_at + MIN_LIFETIME - time.monotonic())
                self._started_at = time.monotonic()
                self._processes = await _start(self._module, len(self._lanes))
            return self._processes

    async def _close(self, processes: _Processes | None) -> None:
        if processes is not None and processes is self._processes:
            self._processes = None
            await processes.close()
