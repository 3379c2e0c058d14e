"""Random edits detect untracked reads. `bench/mutants.py reads` is the long form."""

from __future__ import annotations

import random

import pytest

from pilot.mesh.tables.database import ALLOCATED_ADDRESSES
from testing.edits.gateway_objects import GATEWAYS
from testing.edits.mesh_edits import FLAGS, random_steps, snapshot, tour
from testing.edits.mesh_slots import SLOTS
from testing.edits.report_read_cases import REPORT_CASES
from testing.edits.resource_read_cases import CASES, VIEWS, ReadCase
from testing.edits.untracked_reads import Survey

COURSES = 8  # courses of random edits, at most


def is_detected(survey: Survey, table: str) -> bool:
    """Return whether an untracked read of the table causes wrong resources, trying the sites with the fewest trials first."""
    sites = sorted((site for site in survey.sites if site.table == table), key=survey.count_trials)
    return any(survey.detects(site) for site in sites)


def test_untracked_reads_are_detected_for_every_table() -> None:
    """Random edits and a tour of the gateways detect untracked reads. Further courses cover tables that a course missed."""
    survey, undetected, tables = Survey(snapshot), set[str](), set[str]()
    gateways = [n for n, slot in enumerate(SLOTS) if slot in GATEWAYS or slot.table in ("ConfigMap", "ServiceExport")]
    survey.add(tour(random.Random("tour"), True, gateways), FLAGS)
    for course in range(COURSES):
        survey.add(random_steps(random.Random(course), 60), FLAGS)
        undetected |= {site.table for site in survey.sites} - tables - {ALLOCATED_ADDRESSES}  # has a case below
        tables |= undetected
        undetected = {table for table in undetected if not is_detected(survey, table)}
        if course and not undetected:
            break
    assert len(tables) > 10
    assert undetected == set()


@pytest.mark.parametrize("case", [*CASES, *REPORT_CASES], ids=lambda case: case.read.removeprefix(f"{VIEWS}/"))
def test_edit_depends_on_the_read(case: ReadCase) -> None:
    assert set(case.results().values()) == {True}
