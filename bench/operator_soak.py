"""The operator for longer than a test: random edits of IstioOperators and of what they install, while requests fail.

python bench/operator_soak.py [EDITS [SEED …]]      200 edits by each of seeds 1, 2, 3, watching a list of namespaces and all of them
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from testing.kube.installations import SYSTEM
from testing.kube.operator_edits import TEAMS, run_random_edits


def main() -> None:
    edits = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for seed in map(int, sys.argv[2:] or ("1", "2", "3")):
        for watched in (",".join((SYSTEM, *TEAMS)), ""):
            begun = time.monotonic()
            requests = asyncio.run(run_random_edits(watched, edits, seed))
            seconds = time.monotonic() - begun
            print(
                f"WATCH_NAMESPACE={watched or '(all)'} seed {seed}: {edits} edits, {requests} requests, {seconds:.0f} s: as it should be"
            )


if __name__ == "__main__":
    main()
