#!/usr/bin/env python3
"""Measure how long the event loop stalls while a proxy subscribes to very many names without resources.

    python bench/large_subscriptions.py [--names 50000]

The server runs in this process, the client in another one. For each protocol variant and type, the longest time during
which no other task ran is printed in milliseconds, as wall-clock time and as CPU time, which is more reliable on busy
machines.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pilot.lib.xds_types import BY_SHORT_NAME
from testing.clients.ads import Client, Listening, serving


class Port(Listening):
    """A port to connect to."""

    def __init__(self, port: int) -> None:
        self.number = port

    @property
    def port(self) -> int:
        return self.number


async def subscribe(port: int, variant: str, kind: str, names: int) -> None:
    async with Client(Port(port), variant) as client:
        await client.request(
            kind, "a", *(f"outbound|80||absent-{number}.default.svc.cluster.local" for number in range(names - 1))
        )
        response = await client.receive()
        assert response.type_url == BY_SHORT_NAME[kind]


def run_client(port: int, variant: str, kind: str, names: int) -> None:
    asyncio.run(subscribe(port, variant, kind, names))


async def longest_stall(end: asyncio.Future[None]) -> tuple[float, float]:
    """Return the longest stall in seconds, as wall-clock time and as CPU time."""
    longest, last, longest_cpu, last_cpu = 0.0, time.perf_counter(), 0.0, time.thread_time()
    while not end.done():
        await asyncio.sleep(0.001)
        now, cpu = time.perf_counter(), time.thread_time()
        longest, last, longest_cpu, last_cpu = max(longest, now - last), now, max(longest_cpu, cpu - last_cpu), cpu
    return longest, longest_cpu


async def measure(variant: str, kind: str, names: int) -> tuple[float, float]:
    async with serving() as server:
        server.set(kind, a="1")
        client = multiprocessing.get_context("spawn").Process(
            target=run_client, args=(server.port, variant, kind, names)
        )
        client.start()
        client_exit = asyncio.ensure_future(asyncio.to_thread(client.join))
        longest = await longest_stall(client_exit)
        assert client.exitcode == 0
        return longest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=50_000, help="number of names (default 50000)")
    options = parser.parse_args()
    gc.freeze()  # as the process does
    gc.set_threshold(200_000, 100, 100)
    for kind in ("eds", "rds"):
        for variant in ("sotw", "delta"):
            clock, cpu = asyncio.run(measure(variant, kind, options.names))
            print(f"{kind} {variant}: {1000 * clock:.0f} ms, {1000 * cpu:.0f} ms of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
