"""Runs the installation on clusters in a box, and prints a table: `python -m tests.cluster [STEP …]`.

`faults=NAME` runs one of the faults.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable

from tests.cluster.box.box import Box
from tests.cluster.box.namespaces import in_namespaces
from tests.cluster.box.programs import reason_to_skip
from tests.cluster.gateway_api.suite import CHANNELS
from tests.cluster.steps.ambient import run_ambient
from tests.cluster.steps.chart_values import run_chart_values
from tests.cluster.steps.conformance import run_conformance
from tests.cluster.steps.cutover import run_cutover
from tests.cluster.steps.faults import FAULTS, run_faults
from tests.cluster.steps.features import run_features
from tests.cluster.steps.installations import run_external, run_helm, run_kubectl, run_operator, run_pilotctl
from tests.cluster.steps.two_clusters import run_two_clusters
from tests.cluster.steps.upgrades import run_in_place, run_revisions, run_short
from tests.cluster.steps.workload import run_workload

STEPS: dict[str, Callable[[Box], AsyncIterator[str]]] = {
    "workload": run_workload,
    "short": run_short,
    "kubectl": run_kubectl,
    "pilotctl": run_pilotctl,
    "helm": run_helm,
    "operator": run_operator,
    "external": run_external,
    "features": run_features,
    "values": run_chart_values,
    "revisions": run_revisions,
    "in-place": run_in_place,
    "faults": run_faults,
    "cutover": run_cutover,
    "two-clusters": run_two_clusters,
    "ambient": run_ambient,
    **{f"gateway-api={channel}": functools.partial(run_conformance, channel=channel) for channel in CHANNELS},
}
RUN = "--run"


def steps() -> dict[str, Callable[[Box], AsyncIterator[str]]]:
    """Return all steps that can be selected, by name."""
    return {**STEPS, **{f"faults={name}": functools.partial(run_faults, only=name) for name in FAULTS}}


async def run_step(name: str) -> None:
    """Run a step on a new box, and print a row for all that is seen. If it fails, print the state of the cluster."""
    start = time.monotonic()
    async with Box() as box:
        try:
            async for seen in steps()[name](box):
                print(f"| {name} | {seen} | {time.monotonic() - start:.0f} s |", flush=True)
        except BaseException:
            print(await box.describe(), file=sys.stderr)
            raise


def run_steps(names: list[str]) -> bool:
    """Run steps one after the other, and return whether all succeed."""
    print("| step | seen | time |\n|---|---|---|", flush=True)
    good = True
    for name in names:
        if subprocess.run(in_namespaces(sys.executable, "-m", "tests.cluster", RUN, name), check=False).returncode:
            print(f"| {name} | FAILED | |", flush=True)
            good = False
    return good


def main() -> None:
    """Run the steps that are named, or all."""
    if sys.argv[1:2] == [RUN]:
        asyncio.run(run_step(sys.argv[2]))
        return
    names = sys.argv[1:] or list(STEPS)
    if unknown := [name for name in names if name not in steps()]:
        sys.exit(f"unknown step {unknown[0]!r}; there are {', '.join(steps())}")
    if reason := reason_to_skip():
        sys.exit(reason)
    sys.exit(0 if run_steps(names) else 1)


main()
