#!/usr/bin/env python3
"""What twenty Telemetries and twenty EnvoyFilters (typical.py) cost: a load shape with and without them, event by event in turns.

    python bench/typical_objects_cost.py --load FOLDER [--shapes S2,S3] [--repeats 30] [--starts 3] [--work DIR] [--only cold,endpoint]

FOLDER holds the load programs (mesh.py, fleet.py, load.py). Two servers on one core, each with a fleet of its own, are given the same events
one after the other, the first of each pair in turns, because on most machines the same work costs more in one minute than in another by
more than what is looked for here. Printed are medians of the CPU-seconds of the server's whole process tree, their ratio, and that of the
least, which a busy machine disturbs less; the exit status is 1 where the first is more than promised. Then an EnvoyFilter for one workload
is edited where there are all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import yaml
from load_table import Server, _names_of
from typical_objects import typical

PROMISED = 1.15
EVENTS = ("cold", "reconnect", "endpoint", "virtualservice", "destinationrule", "envoyfilter")
LIMIT = 120.0
"""Seconds that a fleet may take."""
Pair = dict[bool, list[float]]
"""CPU-seconds without the objects (False) and with them (True)."""


class Mesh:
    """A shape: its objects as files, without or with the typical ones, and its proxies."""

    def __init__(self, load: pathlib.Path, name: str, work: pathlib.Path) -> None:
        self.load, self.name, self.work = load, name, work
        self.programs = importlib.import_module("mesh")
        self.shape = self.programs.SHAPES[name]
        pods = self.programs.pods(self.shape)
        self.members = [pods[number % len(pods)] for number in range(self.shape.proxies)]
        self.typical = typical(*_names_of(load, name))

    def write(self, with_typical: bool) -> pathlib.Path:
        """Write the objects into a folder, which it returns."""
        folder = self.work / f"{self.name}-{'with' if with_typical else 'without'}"
        shutil.rmtree(folder, ignore_errors=True)
        written = [
            sys.executable,
            str(self.load / "load.py"),
            "--shape",
            self.name,
            "--config-dir",
            str(folder),
            "--write-only",
        ]
        subprocess.run(written, check=True)
        for plain in self.typical if with_typical else ():  # each in the file that an edit of it is written to
            file = f"{plain['kind']}-{plain['metadata']['namespace']}-{plain['metadata']['name']}.yaml".lower()
            (folder / file).write_text(yaml.dump(plain, Dumper=yaml.CSafeDumper))
        return folder

    def event(self, name: str, serial: int) -> tuple[dict[str, Any], bytes, int]:
        """Return the object of an event, the token that its pushes carry, and how many proxies get it."""
        namespace = serial % self.shape.namespaces
        make = {
            "endpoint": lambda: self.programs.endpoint_event(self.shape, namespace, 1, serial),
            "virtualservice": lambda: self.programs.virtual_service_event(namespace, 2, serial),
            "destinationrule": lambda: self.programs.destination_rule_event(namespace, 3, serial),
        }
        plain, token = make[name]()
        where = plain["metadata"]["namespace"]
        return (
            plain,
            token,
            sum(member.namespace == where for member in self.members) if self.shape.scoped else len(self.members),
        )

    def edits(self, count: int) -> Iterator[tuple[dict[str, Any], bytes, int]]:
        """Yield edits of the EnvoyFilter that patches a virtual host for one workload."""
        plain = next(
            o for o in self.typical if any(p["applyTo"] == "VIRTUAL_HOST" for p in o["spec"].get("configPatches", ()))
        )
        patch, labels = plain["spec"]["configPatches"][0]["patch"], plain["spec"]["workloadSelector"]["labels"]
        reached = [m for m in self.members if (m.namespace, m.app) == (plain["metadata"]["namespace"], labels["app"])]
        for serial in range(count if reached else 0):
            token = f"x-edit-{serial:06}"
            patch["value"]["response_headers_to_remove"] = [token]
            yield plain, token.encode(), len(reached)


class Plane:
    """A server that proxies are connected to."""

    def __init__(self, of: Mesh, folder: pathlib.Path, command: str) -> None:
        self._of, self._load, self._fleets = of, importlib.import_module("load"), importlib.import_module("fleet")
        self.server = Server([str(folder)], folder.with_suffix(".log"), command)
        self.process = self._load.Process(self.server.process.pid)
        self.sink = self._load.Files(str(folder))
        self.fleet: Any = None
        self.idle = 0.0

    async def connect(self) -> float:
        """Connect all proxies, anew where they were; returns what that cost."""
        if self.fleet is not None:
            await self.fleet.close()
            await asyncio.sleep(1)
        nodes = [self._of.programs.node(member) for member in self._of.members]
        self.fleet = self._fleets.Fleet(f"127.0.0.1:{self.server.grpc}", nodes, "delta")
        before: float = self.process.cpu()
        await self.fleet.connect()
        await self.fleet.ready(3 * LIMIT)
        return float(self.process.cpu()) - before

    async def rest(self) -> None:
        """Measure what it costs when nothing happens: over two rounds of what is done every ten seconds, which is more than a small event costs."""
        before, started = self.process.cpu(), time.monotonic()
        await asyncio.sleep(20)
        self.idle = (self.process.cpu() - before) / (time.monotonic() - started)

    async def change(self, plain: dict[str, Any], token: bytes, expected: int) -> float:
        """Write an object; returns what that cost until all proxies that it concerns have it."""
        row = await self._load.event(self.fleet, self.process, self.sink, plain, token, expected, self.idle, LIMIT)
        return float(row["cpu_s"])

    async def close(self) -> None:
        if self.fleet is not None:
            await self.fleet.close()
        await asyncio.to_thread(self.server.stop)


def turns(number: int) -> tuple[bool, bool]:
    return (False, True) if number % 2 == 0 else (True, False)


async def measure(of: Mesh, options: argparse.Namespace) -> dict[str, Pair]:
    """Return the costs of each event."""
    found: dict[str, Pair] = {name: {False: [], True: []} for name in EVENTS}
    folders, planes = {side: of.write(side) for side in (False, True)}, dict[bool, Plane]()
    try:
        for start in range(options.starts if "cold" in options.only else 1):
            for side in turns(start):
                if side in planes:
                    await planes[side].close()
                planes[side] = Plane(of, folders[side], options.command)
                found["cold"][side].append(await planes[side].connect())
        for number in range(options.starts if "reconnect" in options.only else 0):
            for side in turns(number):
                found["reconnect"][side].append(await planes[side].connect())
        await asyncio.sleep(5)
        await asyncio.gather(*(plane.rest() for plane in planes.values()))
        serial = 0
        for name in (name for name in EVENTS[2:5] if name in options.only):
            for number in range(options.repeats + 1):
                serial += 1
                for side in turns(number):
                    cost = await planes[side].change(*of.event(name, serial))
                    if number:  # the first warms up
                        found[name][side].append(cost)
        for made in of.edits(options.repeats + 1 if "envoyfilter" in options.only else 0):
            found["envoyfilter"][True].append(await planes[True].change(*made))
    finally:
        for plane in planes.values():
            await plane.close()
    return found


def show(name: str, found: dict[str, Pair]) -> bool:
    """Print the medians; returns whether all ratios are what is promised."""
    print(f"| {name} | without | with | ratio | of the least | n |\n|---|---|---|---|---|---|")
    kept = True
    for event, costs in found.items():
        if not costs[True]:
            continue
        cost = statistics.median(costs[True])
        base = statistics.median(costs[False]) if costs[False] else None
        kept &= base is None or cost <= PROMISED * base
        compared = f"– | {cost:.4f} | – | –"
        if base is not None:
            compared = f"{base:.4f} | {cost:.4f} | {cost / base:.2f} | {min(costs[True]) / min(costs[False]):.2f}"
        print(f"| {event} | {compared} | {len(costs[True])} |", flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs"
    )
    parser.add_argument("--shapes", default="S2,S3")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument(
        "--starts", type=int, default=3, help="how often each server starts, and how often its fleet comes back"
    )
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(EVENTS), help="the events that are measured"
    )
    parser.add_argument("--work", help="where to keep meshes and logs; default: a temporary folder")
    search = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    parser.add_argument("--command", default=shutil.which("pilot-discovery", path=search))
    options = parser.parse_args()
    sys.path.insert(0, str(options.load))
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="bench-"))
    work.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {1})  # the servers are on core 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kept = [
        show(name, asyncio.run(measure(Mesh(options.load, name, work), options))) for name in options.shapes.split(",")
    ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
