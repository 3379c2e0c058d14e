"""The short form of `bench/mutants.py --reads`: random edits notice when what a derivation reads leaves no trace."""
from __future__ import annotations

from tests.support.reads import noticed, read_courses, sites_of


def test_of_every_table_some_untracked_read_is_noticed() -> None:
    courses = read_courses(2, 50)
    sites = sorted(sites_of(courses), key=str)
    tables = {site.read.rpartition(".")[0] for site in sites}
    assert len(tables) > 10
    unnoticed = {t for t in tables if not any(noticed(site, courses) for site in sites if site.read.rpartition(".")[0] == t)}
    assert not unnoticed
