"""Retries and failures of the reconciler."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from pilot.controllers.reconciler import ControllerGroup, Reconciler
from pilot.kube.api_errors import Unreachable
from pilot.lib.backoff import Backoff
from testing.mesh.clock import run_virtual


class MaxRandom(random.Random):
    def uniform(self, _: float, most: float) -> float:
        return most


def test_failed_keys_are_retried_with_backoff(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[tuple[float, str]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def reconcile(key: str) -> None:
            attempts.append((loop.time(), key))
            if key == "bad" and loop.time() != 7.0:
                raise Unreachable("no answer")

        reconciler = Reconciler[str]("thing", reconcile, Backoff(1.0, 5.0), MaxRandom())
        task = asyncio.create_task(reconciler.run())
        reconciler.enqueue([])
        reconciler.enqueue(["bad", "good", "bad"])
        await asyncio.sleep(6.5)
        reconciler.enqueue(["good"])
        await asyncio.sleep(2.0)
        reconciler.enqueue(["bad"])
        await asyncio.sleep(1.2)
        task.cancel()

    run_virtual(run())
    bad_times = [time for time, key in attempts if key == "bad"]
    assert bad_times == [0.0, 1.0, 3.0, 7.0, 8.5, 9.5]
    assert [time for time, key in attempts if key == "good"] == [0.0, 6.5]
    assert [r.getMessage() for r in caplog.records] == ["thing bad: no answer"] * 5


def test_unexpected_error_does_not_block_other_keys(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[tuple[float, str]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def reconcile(key: str) -> None:
            attempts.append((loop.time(), key))
            if key == "bad" and loop.time() < 2.0:
                raise KeyError(key)

        reconciler = Reconciler[str]("thing", reconcile, Backoff(1.0, 5.0), MaxRandom())
        task = asyncio.create_task(reconciler.run())
        reconciler.enqueue(["bad", "good"])
        await asyncio.sleep(10)
        assert not task.done()
        task.cancel()

    run_virtual(run())
    assert attempts == [(0.0, "bad"), (0.0, "good"), (1.0, "bad"), (3.0, "bad")]
    logs = [(r.levelname, r.getMessage(), r.exc_info is not None) for r in caplog.records]
    assert logs == [("ERROR", "cannot reconcile thing bad", True)] * 2


def test_group_runs_and_resyncs_all_controllers() -> None:
    class Writer:
        def __init__(self) -> None:
            self.events: list[str] = []

        def resync(self) -> None:
            self.events.append("changed")

        async def run(self) -> None:
            self.events.append("run")
            await asyncio.sleep(1000)

    writers = [Writer(), Writer()]
    group = ControllerGroup(*writers)
    group.resync()
    run_briefly(group)
    assert [writer.events for writer in writers] == [["changed", "run"]] * 2


def run_briefly(controller: Any) -> None:
    async def run() -> None:
        task = asyncio.create_task(controller.run())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(run())
