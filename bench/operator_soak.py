"""Test the operator for longer than the tests do: random edits of IstioOperators and installed objects, while requests
fail.

    python bench/operator_soak.py [EDITS [SEED …]]

The default is 200 edits with each of the seeds 1, 2 and 3. Each run is repeated with a list of watched namespaces and
with all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from testing.kube.installations import SYSTEM
from testing.kube.operator_edits import TEAMS, run_random_edits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edits", type=int, nargs="?", default=200, help="edits per run (default 200)")
    parser.add_argument("seeds", type=int, nargs="*", default=[1, 2, 3], help="seeds (default 1 2 3)")
    options = parser.parse_args()
    edits = options.edits
    for seed in options.seeds:
        for watched in (",".join((SYSTEM, *TEAMS)), ""):
            started = time.monotonic()
            requests = asyncio.run(run_random_edits(watched, edits, seed))
            seconds = time.monotonic() - started
            print(
                f"WATCH_NAMESPACE={watched or '(all)'} seed {seed}: {edits} edits, {requests} requests, {seconds:.0f} s: ok"
            )


if __name__ == "__main__":
    main()
