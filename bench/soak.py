#!/usr/bin/env python3
"""Random edits of a whole mesh for a time, against a real process with proxies of all kinds connected over gRPC.

    python bench/soak.py [--minutes 60] [--edits 40] [--work DIR]

In every round the mesh lives through random edits (objects, mesh config, networks, proxies that leave and come back), and is compared with a
fresh start in the middle and at its end, which is where it began: there the number of nodes in the graph must be what it was, and memory,
once warm (a sixth of the time), may not grow by more than a tenth, at the median of ten rounds; no derivation and no stream may fail, and the
log may not tell of exceptions or of tasks that nobody ended. Prints a line a round, behind it which derivations have other numbers of nodes
than at first, and a verdict; exits 1 where a promise is broken. Of a round after which the number is another one, the debug pages are kept in
a folder of its own, and the log has what every task waits for.
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
"""Rounds over which memory is taken at its median, or half of those that there are."""
SWEEP_SECONDS = 75.0  # what nothing watches is freed on a sweep, which comes every ten seconds; a proxy that went is remembered for 30
BUGS = ("pilot_derivation_failures", "pilot_total_xds_internal_errors")
"""Metrics that count what may never happen."""
EVIDENCE = ("krtz", "connections", "syncz", "adsz")


class Round(NamedTuple):
    """`wrong`: differences from a fresh start; `nodes`, `failures` of derivations and streams, `megabytes` and `responses` at its end, the failures
    and the responses those of the whole run."""

    minute: float
    edits: int
    checkpoints: int
    wrong: list[str]
    nodes: int
    failures: int
    megabytes: float
    responses: int


async def back_to(mesh: RealMesh, nodes: int) -> int:
    """Wait until the graph has that many nodes; how many it has at last."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while (found := await node_count(mesh)) != nodes and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    return found


async def node_count(mesh: RealMesh) -> int:
    return int(await asyncio.to_thread(mesh.plane.metric, "pyistiod_graph_nodes"))


async def nodes_by_derivation(mesh: RealMesh) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for entry in json.loads(await asyncio.to_thread(mesh.plane.get, "/debug/krtz")):
        found[entry["name"]] += entry["state"]["outputs"]["count"]
    return found


async def settled_nodes(mesh: RealMesh) -> int:
    """The number of nodes when it has not changed over more than a sweep."""
    count, since = await node_count(mesh), time.monotonic()
    while time.monotonic() - since < 12:
        await asyncio.sleep(1)
        if (now := await node_count(mesh)) != count:
            count, since = now, time.monotonic()
    return count


async def keep_evidence(mesh: RealMesh, number: int) -> None:
    """Write what the control plane says of itself into the folder of a round, and has it log its tasks."""
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
    """The promises that were broken."""
    broken = [f"round {number}: {w}" for number, r in enumerate(rounds, 1) for w in r.wrong[:20]]
    broken += [
        f"round {number}: {r.nodes} nodes in the graph, {nodes} at first"
        for number, r in enumerate(rounds, 1)
        if r.nodes != nodes
    ]
    if rounds[-1].failures:
        broken.append(f"{rounds[-1].failures} failures of derivations and streams: the log says which")
    first, last = levels(rounds, warm_minutes)
    if last > GROWTH * first:
        broken.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    return broken


def levels(rounds: list[Round], warm_minutes: float) -> tuple[float, float]:
    """The medians of the megabytes after the first rounds that are warm, and after the last; 0 where none is. One sample says little: within a
    round, memory goes up and down by a fourteenth."""
    warm = [r.megabytes for r in rounds if r.minute >= warm_minutes]
    few = min(LEVEL, len(warm) // 2 or 1)
    return (statistics.median(warm[:few]), statistics.median(warm[-few:])) if warm else (0.0, 0.0)


async def soak(work: pathlib.Path, rng: random.Random, minutes: float, edits: int) -> list[str]:
    """Rounds until the time is over, one at least; the promises that were broken."""
    mesh = RealMesh(work)
    rounds: list[Round] = []
    try:
        await mesh.start()
        first = await mesh.differences()
        nodes = await settled_nodes(mesh)
        by_derivation = await nodes_by_derivation(mesh)
        print(
            f"{len(mesh.fleet.clients)} streams, {resource_count(list(mesh.fleet.content().values()))} resources, {nodes} nodes",
            *first,
            flush=True,
        )
        print(
            "| round | minute | edits | checkpoints | wrong | nodes | failures | MB | responses |\n" + "|---" * 9 + "|",
            flush=True,
        )
        started = time.monotonic()
        while not rounds or (time.monotonic() - started) / 60 < minutes:
            wrong = await play_round(mesh, rng, edits)
            found = await back_to(mesh, nodes)
            minute = (time.monotonic() - started) / 60
            failures = sum([int(await asyncio.to_thread(mesh.plane.metric, name)) for name in BUGS])
            r = Round(
                minute, edits, 2, wrong, found, failures, resident_megabytes(mesh.plane.child.pid), mesh.fleet.responses
            )
            rounds.append(r)
            cells = [
                len(rounds),
                f"{r.minute:.1f}",
                r.edits,
                r.checkpoints,
                len(r.wrong),
                r.nodes,
                r.failures,
                f"{r.megabytes:.0f}",
                r.responses,
            ]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            if found != nodes:
                print(_changes(by_derivation, await nodes_by_derivation(mesh)), flush=True)
                await keep_evidence(mesh, len(rounds))
        first_level, last_level = levels(rounds, minutes / 6)
        print(
            f"memory: {first_level:.0f} MB at first, {last_level:.0f} at last, {max(r.megabytes for r in rounds):.0f} at most",
            flush=True,
        )
        logged = [f"logged: {line}" for line in (await mesh.logged_errors())[:20]]
        return [f"at the start: {w}" for w in first] + verdict(rounds, nodes, minutes / 6) + logged
    finally:
        await mesh.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--edits", type=int, default=40, help="edits a round")
    parser.add_argument("--work", type=pathlib.Path, help="where to keep files and logs; default: a temporary folder")
    options = parser.parse_args()
    seed = os.environ.get("PYISTIOD_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"PYISTIOD_SEED={seed}")
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    broken = asyncio.run(soak(work, random.Random(seed), options.minutes, options.edits))
    for line in broken:
        print(f"broken: {line}")
    if broken:
        print(f"the files and logs are in {work}")
        return 1
    shutil.rmtree(work)
    print("all promises were kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
