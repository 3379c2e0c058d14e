#!/usr/bin/env python3
"""Measure the cost of 20 Telemetries and 20 EnvoyFilters (typical_objects.py): a load shape with and without them, in
turns.

    python bench/typical_objects_cost.py --load FOLDER [--shapes S2,S3] [--repeats 30] [--starts 3] [--work DIR]
                                         [--only cold,endpoint]

FOLDER contains the load programs (mesh.py, fleet.py, load.py). Two servers on one core, each with its fleet, receive
the same events one after the other, alternating which is first, because on most machines the cost of the same work
varies over time by more than this difference. The output has medians of the CPU-seconds of the server's process tree,
their ratio, and the ratio of the minima, which are less sensitive to other load. The exit status is 1 if a ratio of
medians exceeds the limit. Finally, an EnvoyFilter for one workload is edited on the server with the objects.
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
from load_table import Server, names_of
from typical_objects import typical_objects

MAX_RATIO = 1.15
EVENTS = ("cold", "reconnect", "endpoint", "virtualservice", "destinationrule", "envoyfilter")
TIMEOUT_SECONDS = 120.0
"""Timeout for the fleet."""
Pair = dict[bool, list[float]]
"""CPU-seconds without the objects (False) and with them (True)."""


class Mesh:
    """A shape: its objects as files, with or without the typical ones, and its proxies."""

    def __init__(self, load: pathlib.Path, name: str, work: pathlib.Path) -> None:
        self.load, self.name, self.work = load, name, work
        self.programs = importlib.import_module("mesh")
        self.shape = self.programs.SHAPES[name]
        pods = self.programs.pods(self.shape)
        self.members = [pods[number % len(pods)] for number in range(self.shape.proxies)]
        self.typical = typical_objects(*names_of(load, name))

    def write(self, with_typical: bool) -> pathlib.Path:
        """Write the objects to a folder, and return it."""
        folder = self.work / f"{self.name}-{'with' if with_typical else 'without'}"
        shutil.rmtree(folder, ignore_errors=True)
        command = [
            sys.executable,
            str(self.load / "load.py"),
            "--shape",
            self.name,
            "--config-dir",
            str(folder),
            "--write-only",
        ]
        subprocess.run(command, check=True)
        for plain in self.typical if with_typical else ():  # one file each, as edits write them
            file = f"{plain['kind']}-{plain['metadata']['namespace']}-{plain['metadata']['name']}.yaml".lower()
            (folder / file).write_text(yaml.dump(plain, Dumper=yaml.CSafeDumper))
        return folder

    def event(self, name: str, serial: int) -> tuple[dict[str, Any], bytes, int]:
        """Return the object of an event, the token in its pushes, and the number of proxies that receive it."""
        namespace = serial % self.shape.namespaces
        events = {
            "endpoint": lambda: self.programs.endpoint_event(self.shape, namespace, 1, serial),
            "virtualservice": lambda: self.programs.virtual_service_event(namespace, 2, serial),
            "destinationrule": lambda: self.programs.destination_rule_event(namespace, 3, serial),
        }
        plain, token = events[name]()
        target_namespace = plain["metadata"]["namespace"]
        return (
            plain,
            token,
            sum(member.namespace == target_namespace for member in self.members)
            if self.shape.scoped
            else len(self.members),
        )

    def edits(self, count: int) -> Iterator[tuple[dict[str, Any], bytes, int]]:
        """Yield edits of the EnvoyFilter that patches a virtual host for one workload."""
        plain = next(
            o for o in self.typical if any(p["applyTo"] == "VIRTUAL_HOST" for p in o["spec"].get("configPatches", ()))
        )
        patch, labels = plain["spec"]["configPatches"][0]["patch"], plain["spec"]["workloadSelector"]["labels"]
        affected = [m for m in self.members if (m.namespace, m.app) == (plain["metadata"]["namespace"], labels["app"])]
        for serial in range(count if affected else 0):
            token = f"x-edit-{serial:06}"
            patch["value"]["response_headers_to_remove"] = [token]
            yield plain, token.encode(), len(affected)


class Plane:
    """A server with connected proxies."""

    def __init__(self, mesh: Mesh, folder: pathlib.Path, command: str) -> None:
        self._mesh, self._load, self._fleets = mesh, importlib.import_module("load"), importlib.import_module("fleet")
        self.server = Server([str(folder)], folder.with_suffix(".log"), command)
        self.process = self._load.Process(self.server.process.pid)
        self.sink = self._load.Files(str(folder))
        self.fleet: Any = None
        self.idle = 0.0

    async def connect(self) -> float:
        """Connect, or reconnect, all proxies. Return the CPU-seconds of the server."""
        if self.fleet is not None:
            await self.fleet.close()
            await asyncio.sleep(1)
        nodes = [self._mesh.programs.node(member) for member in self._mesh.members]
        self.fleet = self._fleets.Fleet(f"127.0.0.1:{self.server.grpc}", nodes, "delta")
        before: float = self.process.cpu()
        await self.fleet.connect()
        await self.fleet.ready(3 * TIMEOUT_SECONDS)
        return float(self.process.cpu()) - before

    async def rest(self) -> None:
        """Measure the idle cost over two periods of the ten-second tasks, which exceeds the cost of a small event."""
        before, started = self.process.cpu(), time.monotonic()
        await asyncio.sleep(20)
        self.idle = (self.process.cpu() - before) / (time.monotonic() - started)

    async def change(self, plain: dict[str, Any], token: bytes, expected: int) -> float:
        """Write an object, and return the CPU-seconds until all affected proxies have received it."""
        row = await self._load.event(
            self.fleet, self.process, self.sink, plain, token, expected, self.idle, TIMEOUT_SECONDS
        )
        return float(row["cpu_s"])

    async def close(self) -> None:
        if self.fleet is not None:
            await self.fleet.close()
        await asyncio.to_thread(self.server.stop)


def turns(number: int) -> tuple[bool, bool]:
    return (False, True) if number % 2 == 0 else (True, False)


async def measure(mesh: Mesh, options: argparse.Namespace) -> dict[str, Pair]:
    """Return the costs of each event."""
    costs: dict[str, Pair] = {name: {False: [], True: []} for name in EVENTS}
    folders, planes = {side: mesh.write(side) for side in (False, True)}, dict[bool, Plane]()
    try:
        for start in range(options.starts if "cold" in options.only else 1):
            for side in turns(start):
                if side in planes:
                    await planes[side].close()
                planes[side] = Plane(mesh, folders[side], options.command)
                costs["cold"][side].append(await planes[side].connect())
        for number in range(options.starts if "reconnect" in options.only else 0):
            for side in turns(number):
                costs["reconnect"][side].append(await planes[side].connect())
        await asyncio.sleep(5)
        await asyncio.gather(*(plane.rest() for plane in planes.values()))
        serial = 0
        for name in (name for name in EVENTS[2:5] if name in options.only):
            for number in range(options.repeats + 1):
                serial += 1
                for side in turns(number):
                    cost = await planes[side].change(*mesh.event(name, serial))
                    if number:  # the first one warms up
                        costs[name][side].append(cost)
        for edit in mesh.edits(options.repeats + 1 if "envoyfilter" in options.only else 0):
            costs["envoyfilter"][True].append(await planes[True].change(*edit))
    finally:
        for plane in planes.values():
            await plane.close()
    return costs


def show(name: str, costs: dict[str, Pair]) -> bool:
    """Print the medians. Return whether all ratios are within the limit."""
    print(f"| {name} | without | with | ratio | ratio of minima | n |\n|---|---|---|---|---|---|")
    is_within_limit = True
    for event, pair in costs.items():
        if not pair[True]:
            continue
        cost = statistics.median(pair[True])
        base = statistics.median(pair[False]) if pair[False] else None
        is_within_limit &= base is None or cost <= MAX_RATIO * base
        compared = f"– | {cost:.4f} | – | –"
        if base is not None:
            compared = f"{base:.4f} | {cost:.4f} | {cost / base:.2f} | {min(pair[True]) / min(pair[False]):.2f}"
        print(f"| {event} | {compared} | {len(pair[True])} |", flush=True)
    return is_within_limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs"
    )
    parser.add_argument("--shapes", default="S2,S3", help="load shapes, separated by commas")
    parser.add_argument("--repeats", type=int, default=30, help="repeats of each event (default 30)")
    parser.add_argument(
        "--starts", type=int, default=3, help="number of starts of each server, and of reconnects of its fleet"
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(EVENTS), help="events to measure")
    parser.add_argument("--work", help="folder for meshes and logs (default: a temporary folder)")
    search = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    parser.add_argument("--command", default=shutil.which("pilot-discovery", path=search))
    options = parser.parse_args()
    sys.path.insert(0, str(options.load))
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="bench-"))
    work.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {1})  # the servers are on core 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = [
        show(name, asyncio.run(measure(Mesh(options.load, name, work), options))) for name in options.shapes.split(",")
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
