"""CVE-2022-23635: input from unauthenticated peers never crashes the process. bench/unauthenticated_input.py runs a million examples."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testing.security.hostile_input import CORPUS, Targets, corrupt

SAMPLES = {name: make() for name, make in CORPUS.items()}
EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    result = Targets()
    yield result
    result.close()


@pytest.mark.parametrize("target", SAMPLES)
@EXAMPLES
@given(rng=st.randoms(use_true_random=False))
def test_cve_2022_23635_damaged_input_is_rejected(targets: Targets, target: str, rng: Random) -> None:
    getattr(targets, target)(corrupt(rng, SAMPLES[target]))


@pytest.mark.parametrize("target", SAMPLES)
@EXAMPLES
@given(data=st.binary(max_size=2000))
def test_cve_2022_23635_random_bytes_are_rejected(targets: Targets, target: str, data: bytes) -> None:
    getattr(targets, target)(data)


@pytest.mark.parametrize("target", SAMPLES)
def test_undamaged_samples_are_accepted(targets: Targets, target: str) -> None:
    for data in SAMPLES[target]:
        getattr(targets, target)(data)
