"""The short form of `bench/mutants.py reads`: random edits notice when what a derivation reads leaves no trace."""
from __future__ import annotations

import random

from tests.support.mesh_edits import FLAGS, random_steps
from tests.support.reads import Survey


def test_of_every_table_some_untracked_read_is_noticed() -> None:
    survey = Survey()
    survey.add(random_steps(random.Random("reads"), 200), FLAGS)
    tables = {site.table for site in survey.sites}
    assert len(tables) > 10
    assert {table for table in tables if not any(survey.noticed(site) for site in survey.sites if site.table == table)} == set()
