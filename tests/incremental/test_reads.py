"""Edits notice untracked reads: the short form of `bench/mutants.py reads`."""

from __future__ import annotations

import random

import pytest

from testing.edits.gateway_objects import GATEWAYS
from testing.edits.mesh_edits import FLAGS, random_steps, snapshot, tour
from testing.edits.mesh_slots import SLOTS
from testing.edits.report_read_cases import REPORT_CASES
from testing.edits.resource_read_cases import CASES, VIEWS, ReadCase
from testing.edits.untracked_reads import Survey

COURSES = 8  # courses of random edits, at most


def is_noticed(survey: Survey, table: str) -> bool:
    """Whether proxies get something wrong when some read of the table is untracked. The sites with the fewest occasions are tried first."""
    sites = sorted((site for site in survey.sites if site.table == table), key=survey.count_trials)
    return any(survey.detects(site) for site in sites)


def test_an_untracked_read_of_every_table_is_noticed() -> None:
    """Random edits and a tour of the gateways notice one. A course that has no occasion for some table is followed by another course."""
    survey, unnoticed, tables = Survey(snapshot), set[str](), set[str]()
    gateways = [n for n, slot in enumerate(SLOTS) if slot in GATEWAYS or slot.table in ("ConfigMap", "ServiceExport")]
    survey.add(tour(random.Random("tour"), True, gateways), FLAGS)
    for course in range(COURSES):
        survey.add(random_steps(random.Random(course), 60), FLAGS)
        unnoticed |= {site.table for site in survey.sites} - tables
        tables |= unnoticed
        unnoticed = {table for table in unnoticed if not is_noticed(survey, table)}
        if course and not unnoticed:
            break
    assert len(tables) > 10
    assert unnoticed == set()


@pytest.mark.parametrize("case", [*CASES, *REPORT_CASES], ids=lambda case: case.read.removeprefix(f"{VIEWS}/"))
def test_an_edit_needs_the_read(case: ReadCase) -> None:
    assert set(case.results().values()) == {True}
