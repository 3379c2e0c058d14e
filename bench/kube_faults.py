"""Inject random faults between a control plane and the API servers of a mesh, and compare it with a fresh start.

    python bench/kube_faults.py [--services 1000] [--pods 3] [--sequences 200] [--clusters 1] [--seed N] [--patience 30]

`--patience` is the response timeout in seconds; busy machines need more. One control plane runs through all sequences.
After each sequence, its resources are compared with those of a newly started one. A line is printed every ten
sequences, with the CPU time of this process. The exit status is 1 at the first difference.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pilot.kube.api_client import RequestTimeouts
from testing.kube.kube_mesh import KubeWorld, Servers, difference, start_fresh


async def run(services: int, pods: int, sequences: int, clusters: int, seed: int, patience: int) -> int:
    rng = random.Random(seed)
    servers = Servers(services, pods, clusters, rng)
    await servers.start()
    gc.set_threshold(1_000_000, 50, 1_000)  # collecting two meshes of this size costs more than reading them
    timeouts = RequestTimeouts(connect=float(patience), response=float(patience), watch=3600.0)
    world = KubeWorld(servers, streams=True, timeouts=timeouts)
    await world.start()
    started, cpu = time.monotonic(), time.process_time()
    for number in range(1, sequences + 1):
        for _ in range(rng.randint(5, 30)):
            servers.edit()
            await servers.inject_fault()
        await servers.recover()
        await world.wait_until_synced()
        fresh = await start_fresh(servers, bool(number % 2), timeouts)
        rows, expected = world.rows(), fresh.rows()
        lines = difference(world.resources(), fresh.resources())
        lines += [str(key) for key in rows.keys() | expected.keys() if rows.get(key) != expected.get(key)]
        await fresh.stop()
        if lines:
            print(f"seed {seed}, sequence {number}: {len(lines)} differences", *lines[:10], sep="\n  ")
            return 1
        if number % 10 == 0:
            duration = f"{time.process_time() - cpu:.0f} CPU-s in {time.monotonic() - started:.0f} s"
            print(f"{number} sequences, {len(rows)} objects, {world.edits} edits, {duration}", flush=True)
    await world.stop()
    await servers.stop()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("services", 1000),
        ("pods", 3),
        ("sequences", 200),
        ("clusters", 1),
        ("seed", 1),
        ("patience", 30),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    logging.disable(logging.WARNING)  # every fault is logged
    sys.exit(asyncio.run(run(**vars(parser.parse_args()))))
