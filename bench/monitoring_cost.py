#!/usr/bin/env python3
"""What it costs to be watched: CPU of a control plane with its page open and Prometheus scraping every five seconds, and without.

    python bench/monitoring_cost.py --load FOLDER [--shapes S2,S3] [--rounds 4] [--seconds 30]

FOLDER holds the load programs (mesh.py, fleet.py, load.py). A server on one core is started again and again, in turns without and with
somebody who watches, and given what the load table plays: all proxies connect, all come back, and then configuration is edited once a second,
an endpoint, a VirtualService and a DestinationRule one after the other. The page is stood in for by what it asks: its events, and the mesh
when the picture or the list of proxies is another one. Printed are medians of the CPU-seconds of each part and of their sum; the exit status
is 1 where the sum is more than three percent higher.
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

SCRAPE_SECONDS, PICTURE_SECONDS = 5.0, 3.0
EVENTS = ("endpoint", "virtualservice", "destinationrule")
PARTS = ("cold", "reconnect", "edits", "sum")
PROMISED = 0.03


async def scrape(session: aiohttp.ClientSession, base: str) -> None:
    while True:
        async with session.get(f"{base}/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
            await answer.read()
        await asyncio.sleep(SCRAPE_SECONDS)


async def open_page(session: aiohttp.ClientSession, base: str) -> None:
    """Read the events of the page, and asks for the mesh as the page does: where its picture or its proxies are others, not too often."""
    due, stale, known = 0.0, True, set[str]()
    async with session.get(f"{base}/debug/dashboard/events", timeout=aiohttp.ClientTimeout(total=None)) as events:
        async for line in events.content:
            if line.startswith(b"data:"):
                told = json.loads(line[5:])
                before = set(known)
                known = known.union(row["id"] for row in told.get("proxies", ())).difference(told.get("gone", ()))
                stale = stale or known != before or not told.keys().isdisjoint(("picture", "problems"))
            if stale and time.monotonic() >= due:
                stale, due = False, time.monotonic() + PICTURE_SECONDS
                async with session.get(f"{base}/debug/dashboard/mesh") as answer:
                    await answer.read()


@contextlib.asynccontextmanager
async def watching(base: str) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(read_bufsize=1 << 24) as session:
        tasks = [asyncio.create_task(work(session, base)) for work in (scrape, open_page)]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()  # raises where nobody was watching
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def work(of: Mesh, folder: pathlib.Path, options: argparse.Namespace, watched: bool, serial: int) -> list[float]:
    """Return the CPU-seconds of each part, and of all of them."""
    plane = Plane(of, folder, options.command)
    try:
        async with watching(f"http://127.0.0.1:{plane.server.monitoring}") if watched else contextlib.nullcontext():
            await asyncio.sleep(3)
            costs = [await plane.connect()]
            await asyncio.sleep(2)
            costs.append(await plane.connect())
            await asyncio.sleep(2)
            before = plane.process.cpu()
            for number in range(options.seconds):
                due = time.monotonic() + 1
                await plane.sink.apply(of.event(EVENTS[number % len(EVENTS)], serial + number)[0])
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await plane.fleet.quiet(1)
            costs.append(plane.process.cpu() - before)
    finally:
        await plane.close()
    return [*costs, sum(costs)]


async def measure(of: Mesh, options: argparse.Namespace) -> bool:
    """Print what was found of a shape; returns whether it is what is promised."""
    folder, found = of.write(False), dict[bool, list[list[float]]]()
    for number in range(options.rounds):
        for watched in turns(number):
            costs = await work(of, folder, options, watched, 1000 * (2 * number + watched))
            found.setdefault(watched, []).append(costs)
            print(
                f"{of.name} {'watched' if watched else 'alone'}: {' + '.join(f'{cost:.2f}' for cost in costs[:-1])} s",
                flush=True,
            )
    kept = True
    for index, part in enumerate(PARTS):
        alone, with_watchers = (statistics.median(row[index] for row in found[watched]) for watched in (False, True))
        kept = with_watchers <= (1 + PROMISED) * alone
        print(
            f"| {of.name} | {part} | {alone:.3f} | {with_watchers:.3f} | {100 * (with_watchers / alone - 1):+.1f} % |",
            flush=True,
        )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs"
    )
    parser.add_argument("--shapes", default="S2,S3")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=30)
    search = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    parser.add_argument("--command", default=shutil.which("pilot-discovery", path=search))
    options = parser.parse_args()
    sys.path.insert(0, str(options.load))
    os.sched_setaffinity(0, {1})  # the server is on core 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        kept = [
            asyncio.run(measure(Mesh(options.load, name, pathlib.Path(folder)), options))
            for name in options.shapes.split(",")
        ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
