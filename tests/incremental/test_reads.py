"""The short form of `bench/mutants.py reads`: random edits notice when what a derivation reads leaves no trace."""

from __future__ import annotations

import random

import pytest

from tests.support.gateway_slots import GATEWAYS
from tests.support.mesh_edits import FLAGS, random_steps, snapshot, tour
from tests.support.mesh_slots import SLOTS
from tests.support.read_cases import CASES, VIEWS, ReadCase
from tests.support.reads import Survey
from tests.support.told_read_cases import TOLD_CASES

MORE = 6  # courses of edits, where those before had no occasion for some table


def missed(survey: Survey) -> set[str]:
    """The tables of which no untracked read was noticed."""
    tables = {site.table for site in survey.sites}
    return {table for table in tables if not any(survey.noticed(site) for site in survey.sites if site.table == table)}


@pytest.mark.timeout(600)  # seconds: a minute and a half of work, on a machine that may be busy
def test_of_every_table_some_untracked_read_is_noticed() -> None:
    """Only what proxies get is looked at, which is quick. Where a course of edits has no occasion for some table any more, because there are
    more slots, another one may have."""
    survey = Survey(snapshot)
    survey.add(random_steps(random.Random("first"), 100), FLAGS)
    chosen = [n for n, slot in enumerate(SLOTS) if slot in GATEWAYS or slot.table in ("ConfigMap", "ServiceExport")]
    survey.add(tour(random.Random("tour"), True, chosen), FLAGS)
    for n in range(MORE):
        if missed(survey):
            survey.add(random_steps(random.Random(f"more {n}"), 100), FLAGS)
    assert len({site.table for site in survey.sites}) > 10
    assert missed(survey) == set()


@pytest.mark.parametrize("case", [*CASES, *TOLD_CASES], ids=lambda case: case.read.removeprefix(f"{VIEWS}/"))
def test_an_edit_needs_the_read(case: ReadCase) -> None:
    assert set(case.tried().values()) == {True}
