"""Honest callers of a control plane, in a process of their own. They measure how long they wait."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pathlib
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

import aiohttp
import uvloop

from pilot.lib.event_loop import EventLoop
from testing.clients.fleet import CDS, Fleet
from testing.hostile.callers import UNVERIFIED
from testing.hostile.objects import make_object
from testing.kube.webhooks import pod, review
from testing.mesh.world import proxy

TIMEOUT = 60.0


class Waits(NamedTuple):
    """The longest waits in seconds: for /ready, for /inject, and for the update of another proxy."""

    ready: float
    inject: float
    update: float


class Witness:
    """The process of the honest callers."""

    def __init__(self, ports: dict[str, int], folder: pathlib.Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=run, args=(theirs, ports, folder), daemon=True)
        self._process.start()
        self._pipe.recv()

    def take(self) -> Waits:
        """Return the longest waits since the last call, after a complete round of each."""
        self._pipe.send("take")
        waits: Waits = self._pipe.recv()
        return waits

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


def run(pipe: Connection, ports: dict[str, int], folder: pathlib.Path) -> None:
    uvloop.run(_Callers(pipe, ports, folder).run(), loop_factory=EventLoop)


class _Callers:
    def __init__(self, pipe: Connection, ports: dict[str, int], folder: pathlib.Path) -> None:
        self._pipe, self._ports, self._folder = pipe, ports, folder
        self._longest, self._rounds = [0.0, 0.0, 0.0], [0, 0, 0]
        self._fleet = Fleet(f"127.0.0.1:{ports['grpcAddr']}")
        self._generation = 0

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT)) as session:
            await self._connect()
            await self._update()

            async def ready() -> None:
                async with session.get(f"http://127.0.0.1:{self._ports['httpAddr']}/ready") as response:
                    await response.read()

            body = json.dumps(review(pod())).encode()

            async def inject() -> None:
                url, headers = (
                    f"https://127.0.0.1:{self._ports['httpsAddr']}/inject",
                    {"Content-Type": "application/json"},
                )
                async with session.post(url, data=body, headers=headers, ssl=UNVERIFIED) as response:
                    assert "patch" in (await response.json())["response"]

            works = ((ready, 0.01), (inject, 0.1), (self._update, 0.05))
            tasks = [asyncio.create_task(self._repeat(number, *work)) for number, work in enumerate(works)]
            self._pipe.send("ready")
            while True:
                await asyncio.to_thread(self._pipe.recv)
                before = list(self._rounds)
                while any(now < then + 2 for now, then in zip(self._rounds, before, strict=True)):
                    await asyncio.sleep(0.01)
                    if failed := next((task for task in tasks if task.done()), None):
                        failed.result()
                longest, self._longest[:] = list(self._longest), [0.0, 0.0, 0.0]
                self._pipe.send(Waits(*longest))

    async def _repeat(self, number: int, work: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            started = time.monotonic()
            try:
                await asyncio.wait_for(work(), TIMEOUT)
            except (aiohttp.ClientError, TimeoutError, AssertionError, KeyError):
                self._longest[number] = max(self._longest[number], TIMEOUT)
            self._longest[number] = max(self._longest[number], time.monotonic() - started)
            self._rounds[number] += 1
            await asyncio.sleep(pause)

    async def _connect(self) -> None:
        for kind, address in (("sidecar", "10.1.0.1"), ("router", "10.1.0.2")):
            await self._fleet.connect(kind, proxy(kind, f"{kind}-0", "honest", address, {"istio": "ingress"}), True)

    async def _update(self) -> None:
        """Change a ServiceEntry, and wait until the sidecar has received it."""
        self._generation += 1
        host = f"g{self._generation}.example.org"
        ports = [{"number": 80, "name": "http", "protocol": "HTTP"}]
        entry = make_object(
            "networking.istio.io/v1", "ServiceEntry", {"hosts": [host], "ports": ports, "resolution": "NONE"}
        )
        entry["metadata"].update(name="honest", namespace="honest")
        fresh = self._folder / "honest.new"
        fresh.write_text(json.dumps(entry))
        os.replace(fresh, self._folder / "honest.yaml")
        while not any(host in name for name in self._fleet.clients["sidecar"].resources[CDS]):
            if self._fleet.clients["sidecar"].ended:
                await self._connect()
            await asyncio.sleep(0.005)
