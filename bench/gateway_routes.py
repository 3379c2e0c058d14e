"""Measure the cost of an edit of one HTTPRoute on a Gateway with many routes, in CPU-seconds of this process.

    python bench/gateway_routes.py --routes 100 1000 5000
    python bench/gateway_routes.py --one-host

Every route has a different host, or with `--one-host` all have the same one and share a virtual host. Columns:

    attach    attach all routes
    edit      edit one: its resource, and the status and the problems of the object
    ratio     edit, relative to the first line
    visits    derivations that an edit visits, independent of the machine
    runs      derivations that an edit runs, independent of the machine
    add       attach or detach one more route
    join      join the pieces of the response, which contains all routes
    response  size of the response
"""

from __future__ import annotations

import argparse
import gc
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from pilot.derive import Database, Node
from testing.mesh.gateway_front import GatewayFront, route
from testing.mesh.world import Rows


class Cost(NamedTuple):
    """The cost of one number of routes: CPU-seconds, counts, and the size of the response in bytes."""

    attach: float
    edit: float
    add: float
    visits: int
    runs: int
    join: float
    size: int


def cost_of(front: GatewayFront, rows: Rows) -> float:
    started = time.process_time()
    front.set(rows)
    return time.process_time() - started


def count_visits(front: GatewayFront, rows: Rows) -> int:
    """Return the number of derivations that an edit visits."""
    visits, refresh = 0, Database.refresh

    def counting(db: Database, node: Node) -> None:
        nonlocal visits
        visits += 1
        refresh(db, node)

    Database.refresh = counting  # type: ignore[method-assign,assignment,unused-ignore]
    try:
        front.set(rows)
    finally:
        Database.refresh = refresh  # type: ignore[method-assign,assignment,unused-ignore]
    return visits


def measure(count: int, edits: int, host: str) -> Cost:
    def edited(number: int, edit: str = "") -> Rows:
        return route(number, f"/{number}{edit}", host)

    rows = {key: row for number in range(count) for key, row in edited(number).items()}
    front = GatewayFront({})
    attach = cost_of(front, rows)
    gc.collect()
    gc.freeze()  # as the process does after its first load
    edit_times = [cost_of(front, edited(count // 2, f"/edit{n}")) for n in range(edits)]
    added, removed = edited(count), dict.fromkeys(edited(count))
    additions = [cost_of(front, rows) for _ in range(max(edits // 10, 1)) for rows in (added, removed)]  # type: ignore[arg-type]
    runs = front.mesh.runs
    visits = count_visits(front, edited(count // 2, "/counted"))
    runs = front.mesh.runs - runs
    join_times, size = [], 0
    for _ in range(edits):
        started = time.process_time()
        size = len(b"".join(front.pieces()))
        join_times.append(time.process_time() - started)
    gc.unfreeze()
    return Cost(
        attach,
        statistics.median(edit_times),
        statistics.median(additions),
        visits,
        runs,
        statistics.median(join_times),
        size,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routes", type=int, nargs="+", default=[100, 1000, 5000], help="numbers of routes")
    parser.add_argument("--edits", type=int, default=100, help="measured edits (default 100)")
    parser.add_argument("--one-host", action="store_true", help="all routes have the same host")
    options = parser.parse_args()
    host = "shared.com" if options.one_host else ""
    print(
        f"{'routes':>7} {'attach s':>9} {'edit ms':>8} {'ratio':>6} {'visits':>6} {'runs':>5} {'add ms':>8} {'join ms':>8} {'response KB':>12}"
    )
    measure(10, options.edits, host)  # warm up
    first = 0.0
    for count in options.routes:
        cost = measure(count, options.edits, host)
        first = first or cost.edit
        line = f"{count:>7} {cost.attach:>9.2f} {cost.edit * 1000:>8.2f} {cost.edit / first:>6.2f} {cost.visits:>6} {cost.runs:>5}"
        print(f"{line} {cost.add * 1000:>8.2f} {cost.join * 1000:>8.2f} {cost.size / 1000:>12.0f}")


if __name__ == "__main__":
    main()
