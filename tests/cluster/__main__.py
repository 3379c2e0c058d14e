"""Runs the installation on clusters in a box, and prints a table: `python -m tests.cluster [STEP …]`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from tests.cluster.box.box import Box
from tests.cluster.box.namespaces import in_namespaces
from tests.cluster.box.programs import reason_to_skip
from tests.cluster.steps.installations import run_kubectl
from tests.cluster.steps.workload import run_workload

STEPS: dict[str, Callable[[Box], Awaitable[str]]] = {
    "workload": run_workload,
    "kubectl": run_kubectl,
}
RUN = "--run"


async def run_step(name: str) -> None:
    """Run a step on a new box. If it fails, print the state of the cluster."""
    async with Box() as box:
        try:
            print(await STEPS[name](box))
        except BaseException:
            print(await box.describe(), file=sys.stderr)
            raise


async def run_steps(names: list[str]) -> bool:
    """Run steps one after the other, print a row for each, and return whether all succeed."""
    print("| step | seen | time |\n|---|---|---|", flush=True)
    good = True
    for name in names:
        start = time.monotonic()
        command = in_namespaces(sys.executable, "-m", "tests.cluster", RUN, name)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        seen = output.decode().strip().replace("\n", "; ") if process.returncode == 0 else "FAILED"
        good = good and process.returncode == 0
        print(f"| {name} | {seen} | {time.monotonic() - start:.0f} s |", flush=True)
    return good


def main() -> None:
    """Run the steps that are named, or all."""
    if sys.argv[1:2] == [RUN]:
        asyncio.run(run_step(sys.argv[2]))
        return
    names = sys.argv[1:] or list(STEPS)
    if unknown := [name for name in names if name not in STEPS]:
        sys.exit(f"unknown step {unknown[0]!r}; there are {', '.join(STEPS)}")
    if reason := reason_to_skip():
        sys.exit(reason)
    sys.exit(0 if asyncio.run(run_steps(names)) else 1)


main()
