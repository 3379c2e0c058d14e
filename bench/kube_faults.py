"""Random faults between a control plane and the API servers of a whole mesh; after each sequence it must serve what a fresh start serves.

    python bench/kube_faults.py [--services 1000] [--pods 3] [--sequences 200] [--clusters 1] [--seed N] [--patience 30]

`--patience` is how many seconds an answer may take; a machine that has other things to do needs more. One control plane lives through all
sequences; the one that it is compared with is started after each and only reads.
Prints a line for every ten sequences with the seconds of this process, and ends with 1 at the first difference.
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
    choose = random.Random(seed)
    servers = Servers(services, pods, clusters, choose)
    await servers.start()
    gc.set_threshold(
        1_000_000, 50, 1_000
    )  # two meshes of this size: looking through them for cycles costs more than reading them
    waits = RequestTimeouts(connect=float(patience), response=float(patience), watch=3600.0)
    lives = KubeWorld(servers, streams=True, timeouts=waits)
    await lives.start()
    began, used = time.monotonic(), time.process_time()
    for number in range(1, sequences + 1):
        for _ in range(choose.randint(5, 30)):
            servers.edit()
            await servers.inject_fault()
        await servers.recover()
        await lives.wait_until_synced()
        fresh = await start_fresh(servers, bool(number % 2), waits)
        have, want = lives.rows(), fresh.rows()
        wrong = difference(lives.resources(), fresh.resources())
        wrong += [str(key) for key in have.keys() | want.keys() if have.get(key) != want.get(key)]
        await fresh.stop()
        if wrong:
            print(f"sequence {number} of seed {seed}: {len(wrong)} differences", *wrong[:10], sep="\n  ")
            return 1
        if number % 10 == 0:
            took = f"{time.process_time() - used:.0f} CPU-s in {time.monotonic() - began:.0f} s"
            print(f"{number} sequences, {len(have)} objects, {lives.edits} edits, {took}", flush=True)
    await lives.stop()
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
    logging.disable(logging.WARNING)  # each fault is logged, as it should be
    sys.exit(asyncio.run(run(**vars(parser.parse_args()))))
