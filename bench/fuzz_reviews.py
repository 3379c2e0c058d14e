#!/usr/bin/env python3
"""Send malformed AdmissionReviews to the webhooks, and stop at the first one that causes an internal error.

PYISTIOD_SEED=1 python bench/fuzz_reviews.py [--count 1000000]
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.edits.review_fuzz import ReviewFuzzer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="number of bodies")
    count = parser.parse_args().count
    seed = os.environ.get("PYISTIOD_SEED") or str(random.SystemRandom().randrange(1 << 32))
    logging.disable(logging.CRITICAL)
    fuzz, started = ReviewFuzzer(random.Random(seed)), time.monotonic()
    for number in range(count):
        body = fuzz.body()
        try:
            fuzz.check(body)
        except AssertionError as error:
            print(f"PYISTIOD_SEED={seed}, body {number}: {error}\n{body!r}")
            return 1
    print(f"{count} bodies answered in {time.monotonic() - started:.0f} s (PYISTIOD_SEED={seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
