"""The webhooks answer malformed reviews without internal errors."""

from __future__ import annotations

import random

from testing.edits.review_fuzz import ReviewFuzzer


def test_malformed_reviews_are_answered(seed: int) -> None:
    fuzz = ReviewFuzzer(random.Random(seed))
    for _ in range(1_000):
        body = fuzz.body()
        try:
            fuzz.check(body)
        except AssertionError as error:
            raise AssertionError(f"PYISTIOD_SEED={seed}: {body!r}") from error
