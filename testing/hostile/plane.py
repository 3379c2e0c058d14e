"""A control plane process under attack: its entrances, and what inputs cost it and its honest callers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp

from testing.hostile.callers import (
    OPENINGS,
    UNVERIFIED,
    Target,
    send_bytes,
    send_certificates,
    send_streams,
)
from testing.hostile.objects import gateway_with_overlay
from testing.hostile.witness import Waits, Witness
from testing.kube.webhooks import config_texts, review
from testing.processes.mesh_processes import ERROR_MARKS
from testing.processes.process import ControlPlane
from testing.security.certificates import root, write_plugged_in
from testing.security.tokens import write_keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MEGABYTE = 1 << 20
HTTP_PORTS = {"8080": "httpAddr", "15014": "monitoringAddr", "15017": "httpsAddr"}
SILENT_PORTS = {**HTTP_PORTS, "15010": "grpcAddr", "15012": "secureGRPCAddr"}
SILENT_CONNECTIONS = 900
NOTICED = 0.6
"""Seconds after which a changed file has been noticed, also among many other changes."""
PARSED_IN_A_SECOND = 500_000
"""Number of bytes of a file that are parsed in a second while the machine is busy."""
RELEASED = 12.0
"""Maximum number of seconds until the memory of removed objects is released: an interval between two sweeps, and some
time to notice the removal."""
REMOVED = 1.5
"""Seconds after which a removal has been noticed and processed, if its objects are few."""
ORDINARY = (
    "#" * 100_000
    + """
apiVersion: v1
kind: Service
metadata: {name: ordinary, namespace: hostile}
spec: {ports: [{name: http, port: 80}]}
"""
)
"""An ordinary file that is large enough for a worker."""
Attack = Callable[[], Awaitable[None]]


class Usage(NamedTuple):
    """The CPU seconds and the resident bytes of the control plane and its workers.

    Pages of files are not counted: the processes share them, and the system can drop them.
    """

    cpu: float
    memory: int


def usage(pid: int) -> Usage:
    cpu, memory, waiting = 0.0, 0, [pid]
    while waiting:
        number = waiting.pop()
        with contextlib.suppress(OSError):
            folder = pathlib.Path(f"/proc/{number}")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            cpu += sum(map(int, fields[11:15])) / TICK  # also of workers that have ended
            _, resident, of_files, *_ = map(int, (folder / "statm").read_text().split())
            memory += (resident - of_files) * PAGE
            waiting += [int(n) for task in folder.glob("task/*/children") for n in task.read_text().split()]
    return Usage(cpu, memory)


class Memory:
    """Samples the memory of the control plane. `peak` is the maximum since `reset`."""

    def __init__(self, pid: int) -> None:
        self._pid, self.peak = pid, 0
        threading.Thread(target=self._sample, daemon=True).start()

    def reset(self) -> None:
        self.peak = 0

    def _sample(self) -> None:
        while True:
            self.peak = max(self.peak, usage(self._pid).memory)
            time.sleep(0.05)


class Measure(NamedTuple):
    """The cost of one input: CPU seconds, growth of memory in bytes, and waits of honest callers."""

    cpu: float
    growth: int
    waits: Waits

    def least(self, other: Measure) -> Measure:
        waits = Waits(*map(min, self.waits, other.waits))
        return Measure(min(self.cpu, other.cpu), min(self.growth, other.growth), waits)


class Plane(ControlPlane):
    """A control plane process, its honest callers, and its entrances."""

    def __init__(self, work: pathlib.Path, source: str) -> None:
        self.config = work / "config"
        self.config.mkdir()
        injection = work / "injection"
        injection.mkdir()
        for name, text in zip(("config", "values"), config_texts(), strict=True):
            (injection / name).write_text(text)
        signer = root(now=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1))
        (work / "cacerts").mkdir()
        write_plugged_in(work / "cacerts", signer)
        more = ["--injectionDir", str(injection)]
        wrapper: tuple[str, ...] = ()
        if source == "apiserver":  # which reviews tokens
            wrapper = (sys.executable, "-m", "testing.apiserver.folder")
        else:
            more += ["--tokenKeys", str(write_keys(work / "keys.json"))]
        environ = {"PYTHONPATH": str(ROOT), "ROOT_CA_DIR": str(work / "cacerts")}
        super().__init__(work, self.config, more=more, environ=environ, wrapper=wrapper)
        self.wait_ready()
        self.target = Target(self.ports, signer.roots_pem)
        self.witness = Witness(self.ports, self.config)
        self.pid = self.child.pid
        if wrapper:
            self.pid = int(pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0])
        self.memory = Memory(self.pid)
        self._idle = 0.0

    def calibrate(self) -> None:
        """Start the workers that parse large files, and measure the CPU time that the honest callers cost."""
        self.write(ORDINARY)
        time.sleep(NOTICED + 1)
        self.write("")
        time.sleep(REMOVED)
        self.witness.take()
        before, started = usage(self.pid).cpu, time.monotonic()
        time.sleep(4)
        self._idle = (usage(self.pid).cpu - before) / (time.monotonic() - started)

    async def measure(self, attack: Attack, memory: int | None = None) -> Measure:
        """Send an input, and return its costs. The growth of memory counts from `memory` bytes, by default those in use
        now."""
        await asyncio.to_thread(self.witness.take)
        self.memory.reset()
        before, started = usage(self.pid), time.monotonic()
        await attack()
        await self._settle()
        waits = await asyncio.to_thread(self.witness.take)
        self.check_alive()
        after = usage(self.pid)
        cpu = after.cpu - before.cpu - self._idle * (time.monotonic() - started)
        return Measure(max(0.0, cpu), max(0, self.memory.peak - (before.memory if memory is None else memory)), waits)

    async def wait_released(self, memory: int) -> int:
        """Return the number of bytes in use after a removal, as soon as it is at most `memory`, or after `RELEASED`
        seconds."""
        deadline = time.monotonic() + RELEASED
        await asyncio.sleep(REMOVED)
        while (used := usage(self.pid).memory) > memory and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        return used

    async def _settle(self) -> None:
        """Wait until the control plane has finished, which its CPU time shows."""
        deadline, last = time.monotonic() + 60, usage(self.pid).cpu
        while time.monotonic() < deadline:
            await asyncio.sleep(0.3)
            now = usage(self.pid).cpu
            if now - last < 0.3 * self._idle + 0.06:
                return
            last = now

    def write(self, text: str) -> None:
        """Replace the hostile file."""
        fresh = self.config / "hostile.new"
        fresh.write_text(text)
        os.replace(fresh, self.config / "hostile.yaml")

    async def _write_and_wait(self, text: str) -> None:
        """Replace the hostile file, and wait until its objects are being processed."""
        self.write(text)
        await asyncio.sleep(NOTICED + len(text) / PARSED_IN_A_SECOND)

    async def _post(self, path: str, body: bytes) -> None:
        url, headers = f"https://127.0.0.1:{self.ports['httpsAddr']}{path}", {"Content-Type": "application/json"}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(40)) as session,
                session.post(url, data=body, headers=headers, ssl=UNVERIFIED) as response,
            ):
                await response.read()

    def attack(self, entrance: str, value: Any) -> Attack:
        """Return the function that sends an input to an entrance."""

        async def send() -> None:
            match entrance:
                case "file" | "apiserver":
                    await self._write_and_wait(value if isinstance(value, str) else json.dumps(value))
                case "overlay":
                    await self._write_and_wait(gateway_with_overlay(value))
                case "/validate" | "/inject":
                    await self._post(entrance, json.dumps(review(value)).encode())
                case "15010" | "15012 xDS":
                    await send_streams(value, self.target, entrance != "15010")
                case "15012":
                    await send_certificates(value, self.target)
                case _:
                    tls = UNVERIFIED if entrance == "15017" else None
                    await send_bytes(value.data, value.connections, self.ports[HTTP_PORTS[entrance]], tls)

        return send

    def silences(self, entrance: str) -> list[Attack]:
        """Return functions that open connections and send the beginning of a handshake or request."""

        async def send(opening: bytes) -> None:
            await send_bytes(opening, SILENT_CONNECTIONS, self.ports[SILENT_PORTS[entrance]], None)

        return [lambda opening=opening: send(opening) for opening in OPENINGS]  # type: ignore[misc]

    def errors(self) -> list[str]:
        return [
            line for line in self.log.read_text(errors="replace").splitlines() if any(m in line for m in ERROR_MARKS)
        ]
