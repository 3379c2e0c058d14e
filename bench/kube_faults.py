"""Random faults between a control plane and the API servers of a whole mesh; after each sequence it must serve what a fresh start serves.

    python bench/kube_faults.py [--services 1000] [--pods 3] [--sequences 200] [--clusters 1] [--seed N]

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


async def run(services: int, pods: int, sequences: int, clusters: int, seed: int) -> int:
    choose = random.Random(seed)
    servers = Servers(services, pods, clusters, choose)
    await servers.start()
    patience = Patience(connect=5.0, answer=5.0, watch=60.0)
    lives = KubeWorld(servers, streams=True, patience=patience)
    await lives.start()
    began = time.monotonic()
    for number in range(1, sequences + 1):
        for _ in range(choose.randint(5, 30)):
            servers.edit()
            await servers.disturb()
        await servers.recover()
        await lives.settled()
        fresh = await start_fresh(servers, bool(number % 2), patience)
        wrong = difference(lives.served(), fresh.served()) + [str(key) for key, row in fresh.rows().items() if lives.rows().get(key) != row]
        await fresh.stop()
        if wrong or lives.rows().keys() != fresh.rows().keys():
            print(f"sequence {number} of seed {seed}: {len(wrong)} differences", *wrong[:10], sep="\n  ")
            return 1
        if number % 10 == 0:
            print(f"{number} sequences, {len(lives.rows())} objects, {lives.edits} edits, {time.monotonic() - began:.0f} s", flush=True)
    await lives.stop()
    await servers.stop()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("services", 1000), ("pods", 3), ("sequences", 200), ("clusters", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    sys.exit(asyncio.run(run(**vars(parser.parse_args()))))
