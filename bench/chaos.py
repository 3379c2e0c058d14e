#!/usr/bin/env python3
"""Attack a control plane with hostile clients and broken configuration folders (testing/processes/attacks.py).

    python bench/chaos.py [WORDS] [--scale 1.0] [--work DIR]

WORDS select scenarios whose name contains one of them. One line is printed for each scenario. The exit status is 1 if a
final state differs from that of a fresh start. A full run takes up to 15 minutes; `--scale` reduces the number and the
size of attacks, and the tests use 0.01.
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
                failures = await attack(mesh, scenario, scale)
            except (AssertionError, TimeoutError, OSError, grpc.RpcError) as error:
                failures = [f"the scenario failed: {error!r}"]
            failed += bool(failures)
            result = "FAILED" if failures else "equal to a fresh start"
            print(f"{name:32} {time.monotonic() - started:6.1f} s   {result}", *failures[:10], sep="\n    ", flush=True)
            if failures:
                await mesh.restart(signal.SIGTERM)  # so that the next scenario starts from a correct state
    finally:
        await mesh.stop()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of scenario names")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the attacks (default 1.0)")
    parser.add_argument("--work", type=pathlib.Path, help="folder for files and logs (default: a temporary folder)")
    options = parser.parse_args()
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    if failed := asyncio.run(run(work, options.words, options.scale)):
        print(f"{failed} scenarios failed; files and logs are in {work}")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
