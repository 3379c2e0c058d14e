"""Random faults between a control plane and the API servers of a whole mesh; after each sequence it must serve what a fresh start serves.

    python bench/kube_faults.py [--services 1000] [--pods 3] [--sequences 200] [--clusters 1] [--seed N] [--patience 30]

`--patience` is how many seconds an answer may take; a machine that has other things to do needs more.
Prints a line for every ten sequences, and ends with 1 at the first difference.
"""
from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time

from pilot.kube.client import Patience
from tests.support.kube_world import KubeWorld, Servers, difference, start_fresh


async def run(services: int, pods: int, sequences: int, clusters: int, seed: int, patience: int) -> int:
    choose = random.Random(seed)
    servers = Servers(services, pods, clusters, choose)
    await servers.start()
    waits = Patience(connect=float(patience), answer=float(patience), watch=60.0)
    lives = KubeWorld(servers, streams=True, patience=waits)
    await lives.start()
    began = time.monotonic()
    for number in range(1, sequences + 1):
        for _ in range(choose.randint(5, 30)):
            servers.edit()
            await servers.disturb()
        await servers.recover()
        await lives.settled()
        fresh = await start_fresh(servers, bool(number % 2), waits)
        have, want = lives.rows(), fresh.rows()
        wrong = difference(lives.served(), fresh.served())
        wrong += [str(key) for key in have.keys() | want.keys() if have.get(key) != want.get(key)]
        await fresh.stop()
        if wrong:
            print(f"sequence {number} of seed {seed}: {len(wrong)} differences", *wrong[:10], sep="\n  ")
            return 1
        if number % 10 == 0:
            print(f"{number} sequences, {len(have)} objects, {lives.edits} edits, {time.monotonic() - began:.0f} s", flush=True)
    await lives.stop()
    await servers.stop()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("services", 1000), ("pods", 3), ("sequences", 200), ("clusters", 1), ("seed", 1), ("patience", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    sys.exit(asyncio.run(run(**vars(parser.parse_args()))))
