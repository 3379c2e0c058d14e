#!/usr/bin/env python3
"""Make random edits of a whole mesh for a given time, with a real control plane process and connected proxies of all
types.

    python bench/soak.py [--minutes 60] [--edits 40] [--work DIR]

In each round, random edits are made (objects, mesh config, networks, proxies that disconnect and reconnect). The
proxies' resources are compared with a fresh start in the middle of the round and at its end, when the mesh is back in
its initial state. These requirements are checked:

    - no differences from a fresh start
    - the same number of graph nodes at the end of each round as at the start
    - memory grows by at most a tenth after a warm-up of a sixth of the time, as the median of ten rounds
    - no failed derivations or streams, and no logged exceptions or abandoned tasks

A line is printed for each round, with the derivations whose number of nodes changed, and a verdict at the end. The exit
status is 1 if a requirement is not met. After a round with a different number of nodes, the debug pages are saved in a
folder and the log lists all tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.processes.mesh_processes import RealMesh, resident_megabytes, resource_count
from testing.processes.random_edits import play_round

GROWTH = 1.10
LEVEL = 10
"""Number of rounds for the median of memory, at most half of all rounds."""
SWEEP_SECONDS = 75.0  # unused nodes are swept every 10 s, and disconnected proxies are remembered for 30 s
BUGS = ("pilot_derivation_failures", "pilot_total_xds_internal_errors")
"""Metrics of internal errors, which must stay 0."""
EVIDENCE = ("krtz", "connections", "syncz", "adsz")


class Round(NamedTuple):
    """The result of a round.

    `differences` are those from a fresh start. `failures` and `responses` are totals of the whole run, `nodes` and
    `megabytes` the values at the end of the round.
    """

    minute: float
    edits: int
    checkpoints: int
    differences: list[str]
    nodes: int
    failures: int
    megabytes: float
    responses: int


async def wait_for_node_count(mesh: RealMesh, nodes: int) -> int:
    """Wait until the graph has this number of nodes, and return the final number."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while (count := await node_count(mesh)) != nodes and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    return count


async def node_count(mesh: RealMesh) -> int:
    return int(await asyncio.to_thread(mesh.plane.metric, "pyistiod_graph_nodes"))


async def nodes_by_derivation(mesh: RealMesh) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for entry in json.loads(await asyncio.to_thread(mesh.plane.get, "/debug/krtz")):
        counts[entry["name"]] += entry["state"]["outputs"]["count"]
    return counts


async def stable_node_count(mesh: RealMesh) -> int:
    """Return the number of nodes once it has not changed for longer than a sweep."""
    count, since = await node_count(mesh), time.monotonic()
    while time.monotonic() - since < 12:
        await asyncio.sleep(1)
        if (now := await node_count(mesh)) != count:
            count, since = now, time.monotonic()
    return count


async def save_evidence(mesh: RealMesh, number: int) -> None:
    """Save debug pages in the folder of a round, and have the control plane log its tasks."""
    folder = mesh.work / f"round-{number}"
    folder.mkdir()
    for page in EVIDENCE:
        (folder / f"{page}.json").write_text(await asyncio.to_thread(mesh.plane.get, f"/debug/{page}"))
    mesh.plane.child.send_signal(signal.SIGUSR1)


def _changes(before: collections.Counter[str], now: collections.Counter[str]) -> str:
    return ", ".join(
        f"{name}: {before[name]} to {now[name]}"
        for name in sorted(before.keys() | now.keys())
        if before[name] != now[name]
    )


def verdict(rounds: list[Round], nodes: int, warm_minutes: float) -> list[str]:
    """Return the requirements that are not met."""
    violations = [
        f"round {number}: {difference}" for number, r in enumerate(rounds, 1) for difference in r.differences[:20]
    ]
    violations += [
        f"round {number}: {r.nodes} nodes in the graph, {nodes} at the start"
        for number, r in enumerate(rounds, 1)
        if r.nodes != nodes
    ]
    if rounds[-1].failures:
        violations.append(f"{rounds[-1].failures} failures of derivations and streams, see the log")
    first, last = levels(rounds, warm_minutes)
    if last > GROWTH * first:
        violations.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    return violations


def levels(rounds: list[Round], warm_minutes: float) -> tuple[float, float]:
    """Return the median memory of the first warm rounds and of the last rounds, or 0 if none is warm.

    A single sample is not enough, because memory varies by 7 % within a round.
    """
    warm = [r.megabytes for r in rounds if r.minute >= warm_minutes]
    count = min(LEVEL, len(warm) // 2 or 1)
    return (statistics.median(warm[:count]), statistics.median(warm[-count:])) if warm else (0.0, 0.0)


async def soak(work: pathlib.Path, rng: random.Random, minutes: float, edits: int) -> list[str]:
    """Run at least one round, until the time is over. Return the requirements that are not met."""
    mesh = RealMesh(work)
    rounds: list[Round] = []
    try:
        await mesh.start()
        initial_differences = await mesh.differences()
        nodes = await stable_node_count(mesh)
        by_derivation = await nodes_by_derivation(mesh)
        print(
            f"{len(mesh.fleet.clients)} streams, {resource_count(list(mesh.fleet.content().values()))} resources, {nodes} nodes",
            *initial_differences,
            flush=True,
        )
        print(
            "| round | minute | edits | checkpoints | differences | nodes | failures | MB | responses |\n"
            + "|---" * 9
            + "|",
            flush=True,
        )
        started = time.monotonic()
        while not rounds or (time.monotonic() - started) / 60 < minutes:
            differences = await play_round(mesh, rng, edits)
            count = await wait_for_node_count(mesh, nodes)
            minute = (time.monotonic() - started) / 60
            failures = sum([int(await asyncio.to_thread(mesh.plane.metric, name)) for name in BUGS])
            result = Round(
                minute,
                edits,
                2,
                differences,
                count,
                failures,
                resident_megabytes(mesh.plane.child.pid),
                mesh.fleet.responses,
            )
            rounds.append(result)
            cells = [
                len(rounds),
                f"{result.minute:.1f}",
                result.edits,
                result.checkpoints,
                len(result.differences),
                result.nodes,
                result.failures,
                f"{result.megabytes:.0f}",
                result.responses,
            ]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            if count != nodes:
                print(_changes(by_derivation, await nodes_by_derivation(mesh)), flush=True)
                await save_evidence(mesh, len(rounds))
        first_level, last_level = levels(rounds, minutes / 6)
        print(
            f"memory: {first_level:.0f} MB initially, {last_level:.0f} MB finally, {max(result.megabytes for result in rounds):.0f} MB peak",
            flush=True,
        )
        logged = [f"logged: {line}" for line in (await mesh.logged_errors())[:20]]
        return (
            [f"at the start: {difference}" for difference in initial_differences]
            + verdict(rounds, nodes, minutes / 6)
            + logged
        )
    finally:
        await mesh.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="duration (default 60)")
    parser.add_argument("--edits", type=int, default=40, help="edits per round (default 40)")
    parser.add_argument("--work", type=pathlib.Path, help="folder for files and logs (default: a temporary folder)")
    options = parser.parse_args()
    seed = os.environ.get("PYISTIOD_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"PYISTIOD_SEED={seed}")
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    violations = asyncio.run(soak(work, random.Random(seed), options.minutes, options.edits))
    for line in violations:
        print(f"not met: {line}")
    if violations:
        print(f"files and logs are in {work}")
        return 1
    shutil.rmtree(work)
    print("all requirements are met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
