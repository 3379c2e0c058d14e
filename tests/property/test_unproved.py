"""CVE-2022-23635: nothing that a peer sends before anybody knows who it is ends the process, or surprises it. bench/unproved.py tries a million."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testing.security.hostile_input import CORPUS, Targets, damaged

ALL = {name: make() for name, make in CORPUS.items()}
FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    made = Targets()
    yield made
    made.close()


@pytest.mark.parametrize("kind", ALL)
@FEW
@given(rng=st.randoms(use_true_random=False))
def test_cve_2022_23635_damaged_input_is_refused_and_leaves_nothing(targets: Targets, kind: str, rng: Random) -> None:
    getattr(targets, kind)(damaged(rng, ALL[kind]))


@pytest.mark.parametrize("kind", ALL)
@FEW
@given(data=st.binary(max_size=2000))
def test_cve_2022_23635_any_bytes_are_refused_and_leave_nothing(targets: Targets, kind: str, data: bytes) -> None:
    getattr(targets, kind)(data)


@pytest.mark.parametrize("kind", ALL)
def test_what_is_damaged_is_right_before(targets: Targets, kind: str) -> None:
    for data in ALL[kind]:
        getattr(targets, kind)(data)
