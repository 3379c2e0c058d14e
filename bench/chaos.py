#!/usr/bin/env python3
"""Attack a control plane with hostile clients and broken configuration folders, as testing/processes/attacks.py describes.

    python bench/chaos.py [WORDS] [--scale 1.0] [--work DIR]

WORDS choose scenarios whose names contain one of them. It prints a line for each scenario, exits 1 if an end state is wrong, and
takes up to a quarter of an hour. `--scale` makes fewer and smaller attacks; the tests run them at a hundredth.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from typing import Any

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.processes.attacks import SCENARIOS, attack
from testing.processes.mesh_processes import RealMesh


async def run(work: pathlib.Path, words: list[str], scale: float) -> int:
    mesh, failed = RealMesh(work), 0
    await mesh.start()
    try:
        for scenario in SCENARIOS:
            name: Any = scenario.__name__.replace("_", " ")
            if words and not any(word in name for word in words):
                continue
            started = time.monotonic()
            try:
                wrong = await attack(mesh, scenario, scale)
            except (AssertionError, TimeoutError, OSError, grpc.RpcError) as error:
                wrong = [f"the attack could not be carried out: {error!r}"]
            failed += bool(wrong)
            result = "WRONG" if wrong else "as a fresh start"
            print(f"{name:32} {time.monotonic() - started:6.1f} s   {result}", *wrong[:10], sep="\n    ", flush=True)
            if wrong:
                await mesh.restart(signal.SIGTERM)  # the next scenario is judged by itself
    finally:
        await mesh.stop()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--work", type=pathlib.Path, help="where to keep files and logs; default: a temporary folder")
    options = parser.parse_args()
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    if failed := asyncio.run(run(work, options.words, options.scale)):
        print(f"{failed} scenarios went wrong; the files and logs are in {work}")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
