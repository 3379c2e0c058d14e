#!/usr/bin/env python3
"""What it costs to be watched: CPU of a control plane with its page open and Prometheus scraping every five seconds, and without.

    python bench/watching.py --load FOLDER [--shapes S2,S3] [--rounds 4] [--seconds 30]

FOLDER holds the load programs (mesh.py, fleet.py, load.py). One server on one core is given the same work again and again, in turns without
and with somebody who watches: all proxies come back, and then configuration is edited once a second, an endpoint, a VirtualService and a
DestinationRule one after the other. The page is stood in for by what it asks: its events, and the mesh when the picture is another one.
Printed are medians of the CPU-seconds of both parts and of their sum; the exit status is 1 where the sum is more than three percent higher.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
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
from typical_cost import Mesh, Plane, turns

SCRAPE_SECONDS, PICTURE_SECONDS = 5.0, 3.0
EVENTS = ("endpoint", "virtualservice", "destinationrule")
PARTS = ("reconnect", "edits", "sum")
PROMISED = 0.03


async def scrape(session: aiohttp.ClientSession, base: str) -> None:
    while True:
        async with session.get(f"{base}/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
            await answer.read()
        await asyncio.sleep(SCRAPE_SECONDS)


async def open_page(session: aiohttp.ClientSession, base: str) -> None:
    """Reads the events of the page, and asks for the mesh as the page does: where its picture or its proxies are others, not too often."""
    due = 0.0
    async with session.get(f"{base}/debug/dashboard/events", timeout=aiohttp.ClientTimeout(total=None)) as events:
        async for line in events.content:
            if line.startswith(b"data:") and (b'"picture":' in line or b'"proxies":' in line) and time.monotonic() >= due:
                due = time.monotonic() + PICTURE_SECONDS
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


async def work(of: Mesh, plane: Plane, watched: bool, seconds: int, serial: int) -> tuple[float, float]:
    """Returns the CPU-seconds of all proxies that come back, and of some seconds of edits."""
    async with watching(f"http://127.0.0.1:{plane.server.monitoring}") if watched else contextlib.nullcontext():
        await asyncio.sleep(3)
        back = await plane.connect()
        await asyncio.sleep(2)
        before = plane.process.cpu()
        for number in range(seconds):
            due = time.monotonic() + 1
            await plane.sink.apply(of.event(EVENTS[number % len(EVENTS)], serial + number)[0])
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await plane.fleet.quiet(1)
        return back, plane.process.cpu() - before


async def measure(of: Mesh, options: argparse.Namespace) -> bool:
    """Prints what was found of a shape; returns whether it is what is promised."""
    plane = Plane(of, of.write(False), options.command)
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    try:
        await plane.connect()
        for number in range(2 * options.rounds + 1):
            for watched in (turns(number // 2)[number % 2],) if number else (False,):
                back, edits = await work(of, plane, watched, options.seconds, 1000 * number)
                if number:  # the first warms up
                    found[watched].append((back, edits, back + edits))
                    print(f"{of.name} {'watched' if watched else 'alone'}: {back:.2f} + {edits:.2f} s", flush=True)
    finally:
        await plane.close()
    kept = True
    for index, part in enumerate(PARTS):
        alone, with_watchers = (statistics.median(row[index] for row in found[watched]) for watched in (False, True))
        kept = with_watchers <= (1 + PROMISED) * alone
        print(f"| {of.name} | {part} | {alone:.3f} | {with_watchers:.3f} | {100 * (with_watchers / alone - 1):+.1f} % |", flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs")
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
        kept = [asyncio.run(measure(Mesh(options.load, name, pathlib.Path(folder)), options)) for name in options.shapes.split(",")]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
