#!/usr/bin/env python3
"""Process a million malformed inputs of each kind that unauthenticated peers can send. Memory must not grow.

    python bench/unauthenticated_input.py [--count 1000000] [--kinds certificate_request,first_request,token] [--seed 1]

The output has inputs per second and the resident set after each tenth. If an unexpected exception is raised, the input
is printed in hexadecimal and the program stops.
"""

from __future__ import annotations

import argparse
import gc
import logging
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.security.hostile_input import CORPUS, Targets, corrupt


def megabytes() -> float:
    return int(pathlib.Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def play(targets: Targets, kind: str, count: int, rng: random.Random) -> bool:
    """Process inputs of one kind. Return whether all of them were handled."""
    corpus, target, started = CORPUS[kind](), getattr(targets, kind), time.monotonic()
    for number in range(1, count + 1):
        data = corrupt(rng, corpus)
        try:
            target(data)
        except BaseException:
            print(f"{kind}: input {number}: {data.hex()}", flush=True)
            raise
        if number % max(count // 10, 1) == 0:
            gc.collect()
            print(
                f"{kind:20} {number:9} inputs  {number / (time.monotonic() - started):7.0f}/s  {megabytes():6.1f} MB",
                flush=True,
            )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs of each kind")
    parser.add_argument("--kinds", default=",".join(CORPUS), help="kinds of input, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random inputs")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    targets = Targets()
    for kind in options.kinds.split(","):
        play(targets, kind, options.count, random.Random(options.seed))
    targets.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
