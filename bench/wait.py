#!/usr/bin/env python3
"""Check that `pilotctl wait` reports no delivery falsely, and none late.

    python bench/wait.py [--changes 10000] [--proxies 24] [--seed 1]

Random changes are made over three replicas, while proxies disconnect and reconnect to other replicas, read slowly and
reject responses. Each delivery that is reported is compared with what the connected proxies have acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from testing.control_planes.rollout_trial import Options, run_trial

LATE = 0.2
"""Maximum number of seconds from the last acknowledgement to the report."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = Options()
    for name in ("changes", "workers", "replicas", "proxies", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    options = Options(**vars(parser.parse_args()))
    gc.collect()
    gc.freeze()  # a collection of all modules takes up to 0.2 s, which would count as a delay
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(run_trial(options, pathlib.Path(folder)))
    lags = sorted(result.lags)
    late = sum(lag > LATE for lag in lags)
    print(f"delivered {result.delivered}, refused {result.refused}, expired {result.expired}")
    print(f"false {len(result.false)}", *result.false[:10], sep="\n  ")
    if lags:
        middle, high = lags[len(lags) // 2], lags[len(lags) * 99 // 100]
        print(f"last ACK to report: p50 {middle:.3f} s, p99 {high:.3f} s, max {lags[-1]:.3f} s; {late} over {LATE} s")
    return int(bool(result.false or result.expired or late))


if __name__ == "__main__":
    sys.exit(main())
