#!/usr/bin/env python3
"""Search for inputs that stall, exhaust or blind a control plane, and send the worst ones to a control plane process.

    python bench/hostile.py search [words …] [--inputs 20000] [--seed 1] [--folder build/hostile]
    python bench/hostile.py send [words …] [--source file|apiserver] [--folder build/hostile] [--fleet 500]
                                 [--ready 0.25] [--inject 1] [--update 1] [--growth 100] [--fresh]

`search` calls the code behind the entrances in this process. For each kind of input, it looks for the shapes that take
the most CPU time, memory and uninterrupted time of the event loop for each byte, and for those whose cost grows faster
than their size. It writes the worst ones at up to 1 MB to the folder, and prints them. 20,000 inputs of most kinds take
two to four minutes of CPU time, HTTP queries about 12 minutes, and many objects more than an hour. `--save` also
replaces testing/hostile/worst.json, which the tests read.

`send` sends these inputs to a control plane process, at each entrance that takes them. Honest callers measure meanwhile
how long they wait. An input that exceeds a limit is sent again, because the machine may be busy: the smaller values
count. With --source apiserver, the API server of the tests reads the files. It needs up to a second for 1 MB, which
counts as part of updates. Within 12 seconds after the inputs of a kind are removed, memory must be at most --growth MB
above its level before them. All inputs take about 20 minutes. The exit status is 1 if a limit is exceeded or the log
contains a traceback.

With --fresh, a control plane is started for each input, so that no earlier input has raised its memory. Nothing is sent
again or removed. This takes about ten seconds for each input.

With --fleet, that many honest proxies are connected, and 20 edits a second are delivered to them. The 99th percentile of
the delivery with hostile inputs is compared with the one without. Services, ServiceEntries and VirtualServices that all
proxies receive are left out: the clients of the proxies, which share one process, would need longer for them than the
control plane.

Words select kinds or entrances.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pilot.lib.logging.log import scope
from testing.hostile import search as searching
from testing.hostile.callers import OPENINGS
from testing.hostile.fleet import HonestFleet, percentile
from testing.hostile.kinds import KINDS, SAME_CODE, Kind
from testing.hostile.plane import MEGABYTE, SILENT_PORTS, Attack, Measure, Plane, usage
from testing.hostile.product import Product, limit_memory
from testing.hostile.search import LARGE, LARGEST_INPUT, MEDIUM, Cost, Ranked, Shape

SIZES = (MEDIUM, LARGE, 64_000, 128_000, 512_000, LARGEST_INPUT)
KEPT = 5
RECEIVED_BY_ALL = frozenset({"several ServiceEntries", "several Services", "many objects"})
"""The kinds whose thousands of clusters or routes all proxies receive."""
LARGEST_RISE = 0.2
"""Maximum rise of the 99th percentile of delivery."""
WORST = pathlib.Path(searching.__file__).parent / "worst.json"


def search(options: argparse.Namespace) -> int:
    """Search the selected kinds, and write and print the worst inputs."""
    options.folder.mkdir(parents=True, exist_ok=True)
    limit_memory()
    print(f"{'kind':26} {'entrance':10} {'bytes':>8} {'CPU s':>7} {'+MB':>7} {'step ms':>7} {'growth':>6}", flush=True)
    failed = False
    with tempfile.TemporaryDirectory() as work:
        product = Product(pathlib.Path(work))
        scope("default").propagate = False
        gc.freeze()
        gc.disable()  # a collection would count for the input that causes it
        for name, kind in KINDS.items():
            if options.words and not any(word in name for word in options.words):
                continue
            gc.collect()  # the garbage of the previous kind
            gc.freeze()
            started = time.process_time()
            rows = search_kind(product, name, kind, options)
            faults = sorted({f"{fault.entrance}: {fault.text}" for fault in product.faults})
            product.faults.clear()
            failed = failed or bool(faults)
            path = options.folder / f"{name.replace(' ', '-')}.json"
            path.write_text(json.dumps({"worst": rows, "faults": faults}, indent=1))
            for row in rows[:KEPT]:
                for entrance, (cpu, memory, step) in row["costs"].items():
                    print(
                        f"{name:26} {entrance:10} {row['size']:8} {cpu:7.2f} {memory / 2**20:7.1f} {step * 1000:7.1f} {row['exponent']:6.2f}"
                    )
            print("".join(f"{name:26} {fault}\n" for fault in faults[:KEPT]), end="")
            print(f"{name:26} {options.inputs} inputs, {time.process_time() - started:.0f} CPU seconds", flush=True)
        product.close()
    if options.save:
        save(options.folder)
    return 1 if failed else 0


def search_kind(product: Product, name: str, kind: Kind, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the worst inputs of a kind, the most expensive one first."""

    def measure(shape: Shape, memory: bool) -> Cost:
        costs = [product.measure(entrance, shape.value, memory) for entrance in searched(kind)]
        return Cost(
            sum(cost.cpu for cost in costs), max(cost.memory for cost in costs), max(cost.step for cost in costs)
        )

    climber = searching.HillClimber(random.Random())
    for current in searching.search(kind.build, measure, options.inputs, f"{options.seed} {name}"):
        climber = current
    values: list[Any] = []
    rows: list[dict[str, Any]] = []
    for ranked in climber.best:
        shape, row = largest(product, kind, ranked)
        if shape.value not in values:
            values.append(shape.value)
            rows.append(row)
    return sorted(rows, key=lambda row: -row["worst"])


def searched(kind: Kind) -> list[str]:
    return [entrance for entrance in kind.entrances if entrance not in SAME_CODE]


def largest(product: Product, kind: Kind, ranked: Ranked) -> tuple[Shape, dict[str, Any]]:
    """Return a shape at the size at which it costs most, and its costs."""
    worst: dict[str, Any] = {}
    shape = most_expensive = ranked.shape
    for size in SIZES:
        if size > shape.size:
            shape = searching.enlarge(shape, kind.build, size, ranked.grown)
        costs = {entrance: product.measure(entrance, shape.value, True) for entrance in searched(kind)}
        total = max(cost.total for cost in costs.values())
        if not worst or total > worst["worst"]:
            most_expensive = shape
            worst = {
                "genes": shape.genes, "size": shape.size, "costs": costs, "worst": total,
                "exponent": ranked.exponent, "score": ranked.score,
            }  # fmt: skip
        if total > 4:
            break
    return most_expensive, worst


def save(folder: pathlib.Path) -> None:
    """Write the genes of the worst inputs of each kind for the tests. Kinds without a search keep theirs."""
    genes = {name: rows for name, rows in json.loads(WORST.read_text()).items() if name in KINDS}
    for name in KINDS:
        path = folder / f"{name.replace(' ', '-')}.json"
        if path.exists():
            genes[name] = [row["genes"] for row in json.loads(path.read_text())["worst"][:KEPT]]
    WORST.write_text(json.dumps(genes, separators=(",", ":")) + "\n")


def send(options: argparse.Namespace) -> int:
    """Send the worst inputs of the selected kinds and entrances, and print the costs that exceed limits."""
    return asyncio.run(_send_fresh(options) if options.fresh else _send(options))


async def _send(options: argparse.Namespace) -> int:
    failed = False
    with tempfile.TemporaryDirectory() as work:
        plane = Plane(pathlib.Path(work), options.source)
        fleet: HonestFleet | None = None
        try:
            alone, attacked = list[float](), list[float]()
            if options.fleet:
                fleet = HonestFleet(plane.xds, plane.config, options.fleet)
                await asyncio.sleep(options.alone / 10)  # the first pushes
                fleet.take()
                await asyncio.sleep(options.alone)
                alone = fleet.take()
            plane.calibrate()
            print(HEADER, flush=True)
            if fleet is not None:
                fleet.take()
            for name, entrance, inputs in selected(options):
                logged, memory = len(plane.errors()), usage(plane.pid).memory
                for size, make_attack in inputs:
                    row = await measure(plane, options, make_attack(plane))
                    failed = failed or bool(row.exceeded)
                    print(f"{name:26} {entrance:10} {size:8} {row}", flush=True)
                plane.write("")
                held = (await plane.wait_released(memory + options.growth * MEGABYTE) - memory) / MEGABYTE
                errors = plane.errors()[logged:]
                if errors or held > options.growth:
                    failed = True
                    print(f"{name:26} {entrance:10} held {held:.0f} MB, {len(errors)} errors in the log", flush=True)
                if fleet is not None:
                    times = fleet.take()
                    attacked += times
                    print(f"{name:26} {entrance:10} {delivery(times)}", flush=True)
            if fleet is not None:
                failed = print_delivery(alone, attacked) or failed
        finally:
            if fleet is not None:
                fleet.stop()
            options.folder.mkdir(parents=True, exist_ok=True)
            (options.folder / "pilot.log").write_bytes(plane.log.read_bytes())
            plane.witness.stop()
            plane.stop()
    return 1 if failed else 0


async def _send_fresh(options: argparse.Namespace) -> int:
    """Send each input to a control plane of its own."""
    failed = False
    print(HEADER, flush=True)
    for name, entrance, inputs in selected(options):
        for size, make_attack in inputs:
            with tempfile.TemporaryDirectory() as work:
                plane = Plane(pathlib.Path(work), options.source)
                try:
                    plane.calibrate()
                    costs = await plane.measure(make_attack(plane))
                    errors = plane.errors()
                finally:
                    plane.witness.stop()
                    plane.stop()
            row = Row(costs, [*exceeded(costs, options), *(["errors"] if errors else [])])
            failed = failed or bool(row.exceeded)
            print(f"{name:26} {entrance:10} {size:8} {row}", flush=True)
    return 1 if failed else 0


HEADER = f"{'kind':26} {'entrance':10} {'bytes':>8} {'CPU s':>6} {'+MB':>6} {'ready':>6} {'inject':>6} {'update':>6}  exceeded"


class Row(NamedTuple):
    """The costs of an input, and the names of the exceeded limits."""

    measure: Measure
    exceeded: list[str]

    def __str__(self) -> str:
        cpu, growth, waits = self.measure
        numbers = f"{cpu:6.2f} {growth / MEGABYTE:6.1f} {waits.ready:6.2f} {waits.inject:6.2f} {waits.update:6.2f}"
        return f"{numbers}  {', '.join(self.exceeded)}"


async def measure(plane: Plane, options: argparse.Namespace, attack: Attack) -> Row:
    """Send an input. If it exceeds a limit, send it again, and return the smaller costs."""
    memory = usage(plane.pid).memory
    costs = await plane.measure(attack)
    if exceeded(costs, options):
        plane.write("")
        await plane.wait_released(memory)
        costs = costs.least(await plane.measure(attack, memory))
    return Row(costs, exceeded(costs, options))


def exceeded(costs: Measure, options: argparse.Namespace) -> list[str]:
    """Return the names of the limits that the costs exceed."""
    values = {**costs.waits._asdict(), "growth": costs.growth / MEGABYTE}
    return [name for name, value in values.items() if value > getattr(options, name)]


Inputs = list[tuple[int, Callable[[Plane], Attack]]]
"""Sizes of inputs, and functions that return their attacks."""


def selected(options: argparse.Namespace) -> Iterator[tuple[str, str, Inputs]]:
    """Yield kinds, entrances and the worst inputs."""
    skipped = {"apiserver"} if options.source == "file" else {"file", "15012 xDS"}  # where keys would verify the tokens
    corpus = json.loads(WORST.read_text())
    for name, kind in KINDS.items():
        if options.fleet and name in RECEIVED_BY_ALL:
            print(f"{name:26} left out, because it is not measured with a fleet", flush=True)
            continue
        for entrance in kind.entrances:
            chosen = not options.words or any(word in f"{name} {entrance}" for word in options.words)
            if chosen and entrance not in skipped and (entrance != "overlay" or options.source == "apiserver"):
                shapes = [searching.make(random.Random(0), genes, kind.build) for genes in corpus.get(name, ())]
                yield name, entrance, [(shape.size, attack_with(entrance, shape.value)) for shape in shapes]
    for entrance in SILENT_PORTS:
        if not options.words or any(word in f"silent connections {entrance}" for word in options.words):
            yield (
                "silent connections",
                entrance,
                [
                    (0, lambda plane, entrance=entrance, n=n: plane.silences(entrance)[n])  # type: ignore[misc]
                    for n in range(len(OPENINGS))
                ],
            )


def attack_with(entrance: str, value: Any) -> Callable[[Plane], Attack]:
    return lambda plane: plane.attack(entrance, value)


def delivery(times: list[float]) -> str:
    """Return the number, median and 99th percentile of sorted delivery times."""
    return f"delivery: {len(times)}, median {percentile(times, 0.5):.3f} s, p99 {percentile(times, 0.99):.3f} s"


def print_delivery(alone: list[float], attacked: list[float]) -> bool:
    """Print the delivery times without and with hostile inputs. Return whether the 99th percentile rises too much."""
    attacked.sort()
    print(f"alone {delivery(alone)}")
    print(f"with hostile inputs {delivery(attacked)}")
    rise = percentile(attacked, 0.99) / percentile(alone, 0.99) - 1
    print(f"p99 rises by {rise:.0%}")
    return rise > LARGEST_RISE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("search", "send"))
    parser.add_argument("words", nargs="*", help="parts of kinds or entrances; all by default")
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs of each kind")
    parser.add_argument("--seed", default="1", help="seed of the search")
    parser.add_argument("--save", action="store_true", help="replace the inputs of the tests")
    parser.add_argument("--source", choices=("file", "apiserver"), default="file", help="source of configuration")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/hostile"), help="folder for inputs")
    parser.add_argument("--ready", type=float, default=0.25, help="maximum seconds without a response from /ready")
    parser.add_argument("--inject", type=float, default=1.0, help="maximum seconds of an honest review")
    parser.add_argument("--update", type=float, default=1.0, help="maximum seconds of another proxy's update")
    parser.add_argument("--growth", type=float, default=100.0, help="maximum growth of memory in MB")
    parser.add_argument("--fresh", action="store_true", help="start a control plane for each input")
    parser.add_argument("--fleet", type=int, default=0, help="number of honest proxies that edits are delivered to")
    parser.add_argument("--alone", type=float, default=60.0, help="seconds of edits without hostile inputs")
    options = parser.parse_intermixed_args()
    return search(options) if options.work == "search" else send(options)


if __name__ == "__main__":
    sys.exit(main())
