"""Worker processes: limits, crashes, state and fairness."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
from collections.abc import AsyncIterator

import pytest

from pilot.lib.workers.frames import LARGEST_RESULT, JobLimits
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import LANES, LimitExceeded, Overload, WorkerCrash, WorkerPool

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[4]
ONE = JobSource("192.0.2.1", "shop")
SHORT = (JobLimits(0.1, 96 << 20), JobLimits(0.2, 96 << 20))


@contextlib.asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, lanes: tuple[JobLimits, ...] = SHORT, longest_wait: float = 60.0
) -> AsyncIterator[WorkerPool]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pool = WorkerPool("testing.processes.worker_program", lanes, longest_wait)
    try:
        yield pool
    finally:
        await pool.stop()


async def test_jobs_run_in_one_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        assert await asyncio.gather(*(pool.run(ONE, b"echo %d" % n) for n in range(20))) == [
            b"%d" % n for n in range(20)
        ]
        assert await pool.run(ONE, b"pid") == await pool.run(ONE, b"pid")
        assert len(await pool.run(ONE, b"size 5000000")) == 5_000_000
        assert await pool.run(ONE, b"echo " + b"x" * 6_000_000) == b"x" * 6_000_000


async def test_job_over_the_limit_of_cpu_time_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        hostile = asyncio.create_task(pool.run(ONE, b"spin"))
        assert await pool.run(JobSource("192.0.2.2"), b"echo a") == b"a"
        with pytest.raises(LimitExceeded, match=r"^it takes more than 0.2 seconds of CPU time$"):
            await hostile
        assert await pool.run(ONE, b"echo b") == b"b"


async def test_job_over_the_limit_of_memory_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch, (JobLimits(5.0, 96 << 20),)) as pool:
        with pytest.raises(LimitExceeded, match=r"^it takes more than 96 MiB of memory$"):
            await pool.run(ONE, b"grow")
        with pytest.raises(LimitExceeded, match="MiB of memory"):
            await pool.run(ONE, b"size %d" % (LARGEST_RESULT + 1))
        assert await pool.run(ONE, b"echo a") == b"a"


async def test_worker_that_has_grown_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        await pool.run(ONE, b"echo a")
        assert await pool.run(ONE, b"count") == b"2"
        await pool.run(ONE, b"leak 1000000")
        assert await pool.run(ONE, b"count") == b"4"
        await pool.run(ONE, b"leak 40000000")
        assert await pool.run(ONE, b"count") == b"1"


@pytest.mark.parametrize(("job", "cause"), [(b"kill 6", "SIGABRT"), (b"kill 9", "SIGKILL"), (b"raise", "exit code 1")])
async def test_crash_fails_the_job_alone(job: bytes, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        with pytest.raises(WorkerCrash, match=f"^its worker process ended: {cause}$"):
            await pool.run(ONE, job)
        assert await pool.run(ONE, b"echo a") == b"a"


async def test_crash_between_jobs_does_not_affect_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        for number in range(3):
            pid = int(await pool.run(ONE, b"pid"))
            os.kill(pid, signal.SIGKILL)
            while pathlib.Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.001)
            assert await pool.run(ONE, b"echo %d" % number) == b"%d" % number
            assert await pool.run(ONE, b"count") == b"2"


async def test_processes_start_again_when_they_end(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    async with running(monkeypatch) as pool:
        pool.load(b"one")
        assert await pool.run(ONE, b"end %s" % bytes(tmp_path / "first run")) == b""
        assert await pool.run(ONE, b"state") == b"one"


async def test_invalid_state_fails_jobs_until_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        pool.load(b"invalid")
        with pytest.raises(WorkerCrash, match=r"^the worker processes ended$"):
            await pool.run(ONE, b"echo a")
        pool.load(b"one")
        assert await pool.run(ONE, b"state") == b"one"


async def test_every_worker_has_the_latest_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        assert await pool.run(ONE, b"state") == b"none"
        pool.load(b"one")
        assert await pool.run(ONE, b"state") == b"one"
        with pytest.raises(WorkerCrash):
            await pool.run(ONE, b"kill 9")
        assert await pool.run(ONE, b"state") == b"one"
        pool.load(b"two")
        pool.load(b"three")
        assert await pool.run(ONE, b"state") == b"three"


async def test_job_waits_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch, (JobLimits(60.0, 96 << 20),), 0.05) as pool:
        with pytest.raises(Overload, match=r"^no worker had time for it within 0.05 seconds$"):
            await pool.run(ONE, b"spin")


async def test_stop_fails_waiting_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as pool:
        job = asyncio.create_task(pool.run(ONE, b"spin"))
        await asyncio.sleep(0)
        await pool.stop()
        with pytest.raises(WorkerCrash, match="its worker process was stopped"):
            await job


async def test_pool_without_jobs_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", fail)
    async with running(monkeypatch) as pool:
        pool.load(b"state")
        await asyncio.sleep(0)


async def test_job_over_the_limits_of_the_first_run_runs_again_with_higher_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(monkeypatch, (JobLimits(1.0, 16 << 20), JobLimits(1.0, 96 << 20))) as pool:
        assert await pool.run(ONE, b"leak 30000000") == b"kept"


def test_second_run_has_higher_limits() -> None:
    first, second = LANES
    assert first.cpu < second.cpu
    assert first.memory < second.memory
