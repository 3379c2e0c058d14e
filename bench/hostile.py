#!/usr/bin/env python3
"""Search for inputs that stall, exhaust or blind a control plane.

    python bench/hostile.py [words …] [--inputs 20000] [--seed 1] [--source file|apiserver] [--folder build/hostile]
                            [--ready 0.25] [--inject 1] [--update 1] [--growth 100]

For each entrance and kind, a search sends inputs of at most 1 MB to a control plane process, and changes those that
take the most CPU time and memory for each byte. Honest callers measure meanwhile how long they wait. An input that
exceeds a limit is sent again, because the machine may be busy: the smaller values count. The five worst inputs of each
kind are written to the folder, and a table of the worst one is printed. The exit status is 1 if a limit is exceeded or
the log contains a traceback. Words select families by entrance or kind. 20,000 inputs of a family take about two hours.

With --source apiserver, the API server of the tests reads the files. It needs up to a second for 1 MB, which counts as
part of updates.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.hostile.callers import CALLERS, UNVERIFIED, Input
from testing.hostile.objects import CONFIGURATION, pods, yaml_aliases
from testing.hostile.search import Choices, HillClimber, make
from testing.hostile.witness import Waits, Witness
from testing.kube.webhooks import config_texts, review
from testing.processes.mesh_processes import ERROR_MARKS
from testing.processes.process import ControlPlane

ROOT = pathlib.Path(__file__).resolve().parents[1]
TICK = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1 << 20


class Usage(NamedTuple):
    """The CPU seconds and the resident bytes of the control plane and its workers."""

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
            memory += int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
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

    def score(self, size: int) -> float:
        """Return the cost for each byte. Small inputs count as 500 bytes, so that noise is not preferred."""
        return (self.cpu + self.growth / (50 * MEGABYTE) + sum(self.waits) / 4) / max(size, 500)

    def beyond(self, limits: argparse.Namespace) -> list[str]:
        """Return the names of the exceeded limits."""
        values = {**self.waits._asdict(), "growth": self.growth / MEGABYTE}
        return [name for name, value in values.items() if value > getattr(limits, name)]


class Plane(ControlPlane):
    """A control plane process, its honest callers, and its entrances."""

    def __init__(self, work: pathlib.Path, source: str) -> None:
        self.config = work / "config"
        self.config.mkdir()
        injection = work / "injection"
        injection.mkdir()
        for name, text in zip(("config", "values"), config_texts(), strict=True):
            (injection / name).write_text(text)
        more = ["--injectionDir", str(injection)]
        self._source = source
        wrapper = (sys.executable, "-m", "testing.apiserver.folder") if source == "apiserver" else ()
        super().__init__(work, self.config, more=more, environ={"PYTHONPATH": str(ROOT)}, wrapper=wrapper)
        self.wait_ready()
        self.witness = Witness(self.ports, self.config)
        self.pid = self._find()
        self.memory = Memory(self.pid)
        self._idle = 0.0

    def _find(self) -> int:
        """Return the process of the control plane, which is a child of the API server's if there is one."""
        if self._source == "file":
            return self.child.pid
        return int(pathlib.Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()[0])

    def calibrate(self) -> None:
        """Measure the CPU time that the honest callers cost."""
        self.witness.take()
        before, started = usage(self.pid).cpu, time.monotonic()
        time.sleep(2)
        self._idle = (usage(self.pid).cpu - before) / (time.monotonic() - started)

    async def measure(self, attack: Callable[[Any], Any]) -> Measure:
        await asyncio.to_thread(self.witness.take)
        self.memory.reset()
        before, started = usage(self.pid), time.monotonic()
        await attack(self)
        await self._settle()
        waits = await asyncio.to_thread(self.witness.take)
        self.check_alive()
        after = usage(self.pid)
        cpu = after.cpu - before.cpu - self._idle * (time.monotonic() - started)
        return Measure(max(0.0, cpu), max(0, self.memory.peak - before.memory), waits)

    async def _settle(self) -> None:
        """Wait until the control plane has finished, which its CPU time shows."""
        deadline, last = time.monotonic() + 60, usage(self.pid).cpu
        while time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            now = usage(self.pid).cpu
            if now - last < 0.2 * self._idle + 0.04:
                return
            last = now

    async def write(self, text: str) -> None:
        """Replace the hostile file."""
        fresh = self.config / "hostile.new"
        fresh.write_text(text)
        os.replace(fresh, self.config / "hostile.yaml")

    async def send(self, path: str, body: bytes) -> None:
        url, headers = f"https://127.0.0.1:{self.ports['httpsAddr']}{path}", {"Content-Type": "application/json"}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(40)) as session,
                session.post(url, data=body, headers=headers, ssl=UNVERIFIED) as response,
            ):
                await response.read()

    def errors(self) -> list[str]:
        return [
            line for line in self.log.read_text(errors="replace").splitlines() if any(m in line for m in ERROR_MARKS)
        ]


Family = tuple[str, str]
"""An entrance and a kind of input."""


def file_input(value: Any) -> Input:
    text = value if isinstance(value, str) else json.dumps(value)

    async def attack(plane: Any) -> None:
        await plane.write(text)

    return Input(text, len(text), attack)


def review_input(path: str) -> Callable[[Any], Input]:
    def make_input(value: Any) -> Input:
        body = json.dumps(review(value)).encode()

        async def attack(plane: Any) -> None:
            await plane.send(path, body)

        return Input(body.decode(), len(body), attack)

    return make_input


def caller_input(value: Input) -> Input:
    async def attack(plane: Any) -> None:
        await value.attack(plane.ports)

    return Input(value.description, value.size, attack)


def families(source: str) -> dict[Family, tuple[Callable[[Choices], Any], Callable[[Any], Input]]]:
    """Return the builder of each family, and the function that makes its values inputs."""
    result: dict[Family, tuple[Callable[[Choices], Any], Callable[[Any], Input]]] = {}
    for kind, build in CONFIGURATION.items():
        result[source, kind] = build, file_input
        result["/validate", kind] = build, review_input("/validate")
    if source == "file":
        result[source, "YAML aliases"] = yaml_aliases, file_input
    result["/inject", "Pods"] = pods, review_input("/inject")
    return result | {family: (build, caller_input) for family, build in CALLERS.items()}


class Row(NamedTuple):
    """A worst input."""

    family: Family
    size: int
    measure: Measure
    held: float
    beyond: list[str]


HEADER = f"{'entrance':10} {'kind':28} {'bytes':>8} {'CPU s':>6} {'+MB':>6} {'held':>5} {'ready':>6} {'inject':>6} {'update':>6}  exceeded"


def printed(row: Row) -> str:
    m = row.measure
    return (
        f"{row.family[0]:10} {row.family[1]:28} {row.size:8} {m.cpu:6.2f} {m.growth / MEGABYTE:6.1f} {row.held:5.0f}"
        f" {m.waits.ready:6.2f} {m.waits.inject:6.2f} {m.waits.update:6.2f}  {', '.join(row.beyond)}"
    )


async def search(plane: Plane, family: Family, options: argparse.Namespace) -> Row:
    """Send inputs of a family, write the worst ones to files, and return the worst one."""
    build, make_input = families(options.source)[family]
    rng, climber = (
        random.Random(f"{options.seed} {family}"),
        HillClimber(random.Random(f"{options.seed} climb {family}")),
    )
    worst: Row | None = None
    start = usage(plane.pid).memory
    for _ in range(options.inputs):
        value, genes = make(rng, climber.propose(), build)
        sent = make_input(value)
        measure = await plane.measure(sent.attack)
        if measure.beyond(options):
            if isinstance(sent.description, str):
                await plane.write("")
            measure = measure.least(await plane.measure(sent.attack))
        climber.learn(genes, measure.score(sent.size))
        row = Row(family, sent.size, measure, 0.0, measure.beyond(options))
        if worst is None or (len(row.beyond), measure.score(1)) > (len(worst.beyond), worst.measure.score(1)):
            worst = row
            save(
                options.folder, family, "largest", {"genes": genes, "measure": printed(row), "input": sent.description}
            )
    await plane.write("")
    await asyncio.sleep(1.5)
    await asyncio.to_thread(plane.witness.take)
    assert worst is not None
    best = [{"genes": genes, "score": score} for score, genes in climber.best]
    save(options.folder, family, "best", best)
    return worst._replace(held=(usage(plane.pid).memory - start) / MEGABYTE)


def save(folder: pathlib.Path, family: Family, name: str, content: Any) -> None:
    words = "-".join(family).replace("/", "").replace(" ", "-")
    (folder / f"{words}-{name}.json").write_text(json.dumps(content))


async def run(options: argparse.Namespace) -> int:
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [f for f in families(options.source) if not options.words or any(w in " ".join(f) for w in options.words)]
    failed = False
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as work:
        plane = Plane(pathlib.Path(work), options.source)
        try:
            plane.calibrate()
            for family in chosen:
                logged = len(plane.errors())
                row = await search(plane, family, options)
                if len(plane.errors()) > logged:
                    row.beyond.append("traceback")
                failed = failed or bool(row.beyond)
                print(printed(row), flush=True)
        finally:
            (options.folder / "pilot.log").write_bytes(plane.log.read_bytes())
            plane.witness.stop()
            plane.stop()
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of entrances or kinds; all by default")
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs of each family")
    parser.add_argument("--seed", default="1", help="seed of the search")
    parser.add_argument("--source", choices=("file", "apiserver"), default="file", help="source of configuration")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/hostile"), help="folder for inputs")
    parser.add_argument("--ready", type=float, default=0.25, help="maximum seconds without a response from /ready")
    parser.add_argument("--inject", type=float, default=1.0, help="maximum seconds of an honest review")
    parser.add_argument("--update", type=float, default=1.0, help="maximum seconds of another proxy's update")
    parser.add_argument("--growth", type=float, default=100.0, help="maximum growth of memory in MB")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
