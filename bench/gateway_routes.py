"""What an edit of one HTTPRoute costs on a Gateway with many: attach all, then edit one, in seconds of CPU of this process.

Every route has a host of its own, as those of many teams have: all routes of one host are one virtual host, which an edit of any of them builds
anew. `edit` has all that follows from one: the resource, the status and the problems of the object; `ratio` is to the first line's. `one more`
attaches another route and takes it away. `looks` are the derivations that an edit looks at, `runs` those that it runs, neither of which depend on
the machine. The answer has all routes, since Envoy takes a route configuration as a whole: `join` puts its pieces together.

    python bench/gateway_routes.py --routes 100 1000 5000
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
    """Seconds of CPU, but for the counts `looks` and `runs`, and the bytes of an answer."""

    attach: float
    edit: float
    more: float
    looks: int
    runs: int
    join: float
    size: int


def cost_of(front: GatewayFront, rows: Rows) -> float:
    began = time.process_time()
    front.set(rows)
    return time.process_time() - began


def count_looks(front: GatewayFront, rows: Rows) -> int:
    """Return how many derivations an edit looks at."""
    looks, refresh = 0, Database.refresh

    def counting(db: Database, node: Node) -> None:
        nonlocal looks
        looks += 1
        refresh(db, node)

    Database.refresh = counting  # type: ignore[method-assign,assignment,unused-ignore]
    try:
        front.set(rows)
    finally:
        Database.refresh = refresh  # type: ignore[method-assign,assignment,unused-ignore]
    return looks


def measure(count: int, edits: int) -> Cost:
    rows = {key: row for number in range(count) for key, row in route(number).items()}
    front = GatewayFront({})
    attach = cost_of(front, rows)
    gc.collect()
    gc.freeze()  # as the process does after its first load
    edited = [cost_of(front, route(count // 2, f"/edit{n}")) for n in range(edits)]
    added, taken = route(count), dict.fromkeys(route(count))
    more = [cost_of(front, rows) for _ in range(max(edits // 10, 1)) for rows in (added, taken)]  # type: ignore[arg-type]
    runs = front.mesh.runs
    looks = count_looks(front, route(count // 2, "/counted"))
    runs = front.mesh.runs - runs
    joined, size = [], 0
    for _ in range(edits):
        began = time.process_time()
        size = len(b"".join(front.pieces()))
        joined.append(time.process_time() - began)
    gc.unfreeze()
    return Cost(
        attach, statistics.median(edited), statistics.median(more), looks, runs, statistics.median(joined), size
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--edits", type=int, default=100)
    asked = parser.parse_args()
    print(
        f"{'routes':>7} {'attach s':>9} {'edit ms':>8} {'ratio':>6} {'looks':>6} {'runs':>5} {'one more ms':>12} {'join ms':>8} {'answer KB':>10}"
    )
    measure(10, asked.edits)  # so that the first line is not of code that never ran
    first = 0.0
    for count in asked.routes:
        cost = measure(count, asked.edits)
        first = first or cost.edit
        shown = f"{count:>7} {cost.attach:>9.2f} {cost.edit * 1000:>8.2f} {cost.edit / first:>6.2f} {cost.looks:>6} {cost.runs:>5}"
        print(f"{shown} {cost.more * 1000:>12.2f} {cost.join * 1000:>8.2f} {cost.size / 1000:>10.0f}")


if __name__ == "__main__":
    main()
