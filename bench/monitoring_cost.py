#!/usr/bin/env python3
"""Measure the cost of monitoring: CPU time of a control plane with and without an open dashboard and a Prometheus
scrape.

    python bench/monitoring_cost.py --load FOLDER [--shapes S2,S3] [--rounds 4] [--seconds 30]

FOLDER contains the load programs (mesh.py, fleet.py, load.py). A server on one core is started repeatedly, alternately
without and with monitoring. All proxies connect and reconnect, then configuration is edited once a second: an endpoint,
a VirtualService and a DestinationRule in turn. The dashboard is simulated by its requests: the event stream, and the
mesh when the picture or the list of proxies changes. Prometheus scrapes every five seconds. The output has medians of
the CPU-seconds of each part and of the sum. The exit status is 1 if the sum is more than three percent higher.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator

import aiohttp
from typical_objects_cost import Mesh, Plane, turns

SCRAPE_SECONDS, PICTURE_SECONDS = 5.0, 2.0
EVENTS = ("endpoint", "virtualservice", "destinationrule")
PARTS = ("cold", "reconnect", "edits", "sum")
MAX_INCREASE = 0.03


async def scrape(session: aiohttp.ClientSession, base: str) -> None:
    while True:
        async with session.get(f"{base}/metrics", headers={"Accept-Encoding": "gzip"}) as response:
            await response.read()
        await asyncio.sleep(SCRAPE_SECONDS)


async def open_page(session: aiohttp.ClientSession, base: str) -> None:
    """Read the event stream of the dashboard, and request the mesh as the dashboard does, with a minimum interval."""
    due, stale = 0.0, True
    async with session.get(f"{base}/debug/dashboard/events", timeout=aiohttp.ClientTimeout(total=None)) as events:
        async for line in events.content:
            if line.startswith(b"data:"):
                event = json.loads(line[5:])
                stale = stale or not event.keys().isdisjoint(("graph", "problems", "fleet", "revision"))
            if stale and time.monotonic() >= due:
                stale, due = False, time.monotonic() + PICTURE_SECONDS
                async with session.get(f"{base}/debug/dashboard/mesh") as response:
                    await response.read()


@contextlib.asynccontextmanager
async def monitoring(base: str) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(read_bufsize=1 << 24) as session:
        tasks = [asyncio.create_task(job(session, base)) for job in (scrape, open_page)]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()  # raises if monitoring failed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def measure_parts(
    mesh: Mesh, folder: pathlib.Path, options: argparse.Namespace, is_monitored: bool, serial: int
) -> list[float]:
    """Return the CPU-seconds of each part, and their sum."""
    plane = Plane(mesh, folder, options.command)
    try:
        async with (
            monitoring(f"http://127.0.0.1:{plane.server.monitoring}") if is_monitored else contextlib.nullcontext()
        ):
            await asyncio.sleep(3)
            costs = [await plane.connect()]
            await asyncio.sleep(2)
            costs.append(await plane.connect())
            await asyncio.sleep(2)
            cpu = plane.process.cpu()
            for number in range(options.seconds):
                due = time.monotonic() + 1
                await plane.sink.apply(mesh.event(EVENTS[number % len(EVENTS)], serial + number)[0])
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await plane.fleet.quiet(1)
            costs.append(plane.process.cpu() - cpu)
    finally:
        await plane.close()
    return [*costs, sum(costs)]


async def measure(mesh: Mesh, options: argparse.Namespace) -> bool:
    """Print the results for a shape. Return whether the increase is within the limit."""
    folder, costs_by_mode = mesh.write(False), dict[bool, list[list[float]]]()
    for number in range(options.rounds):
        for is_monitored in turns(number):
            costs = await measure_parts(mesh, folder, options, is_monitored, 1000 * (2 * number + is_monitored))
            costs_by_mode.setdefault(is_monitored, []).append(costs)
            print(
                f"{mesh.name} {'with' if is_monitored else 'without'} monitoring: {' + '.join(f'{cost:.2f}' for cost in costs[:-1])} s",
                flush=True,
            )
    is_within_limit = True
    for index, part in enumerate(PARTS):
        baseline, monitored = (
            statistics.median(row[index] for row in costs_by_mode[is_monitored]) for is_monitored in (False, True)
        )
        is_within_limit = monitored <= (1 + MAX_INCREASE) * baseline
        print(
            f"| {mesh.name} | {part} | {baseline:.3f} | {monitored:.3f} | {100 * (monitored / baseline - 1):+.1f} % |",
            flush=True,
        )
    return is_within_limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs"
    )
    parser.add_argument("--shapes", default="S2,S3", help="load shapes, separated by commas")
    parser.add_argument("--rounds", type=int, default=4, help="rounds with and without monitoring (default 4)")
    parser.add_argument("--seconds", type=int, default=30, help="duration of the edits (default 30)")
    search = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    parser.add_argument("--command", default=shutil.which("pilot-discovery", path=search))
    options = parser.parse_args()
    sys.path.insert(0, str(options.load))
    os.sched_setaffinity(0, {1})  # the server is on core 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        results = [
            asyncio.run(measure(Mesh(options.load, name, pathlib.Path(folder)), options))
            for name in options.shapes.split(",")
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
