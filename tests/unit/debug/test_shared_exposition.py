"""The metrics that requests share."""

from __future__ import annotations

import gzip

from pilot.debug.shared_exposition import SharedExposition


def test_flood_of_requests_computes_the_metrics_for_a_tenth_of_the_time() -> None:
    now, computed = 0.0, 0

    def compute() -> bytes:
        nonlocal now, computed
        now, computed = now + 0.05, computed + 1
        return b"metrics %d" % computed

    exposition = SharedExposition(compute, lambda: now)
    for _ in range(1100):
        assert exposition.body(compressed=False) == b"metrics %d" % computed
        now += 0.005
    assert computed <= 11


def test_slow_exposition_is_reused_for_at_most_a_second() -> None:
    now, computed = 0.0, 0

    def compute() -> bytes:
        nonlocal now, computed
        now, computed = now + 5, computed + 1
        return b"%d" % computed

    exposition = SharedExposition(compute, lambda: now)
    assert exposition.body(compressed=False) == b"1"
    now += 0.9
    assert gzip.decompress(exposition.body(compressed=True)) == b"1"
    now += 0.2
    assert gzip.decompress(exposition.body(compressed=True)) == b"2"
