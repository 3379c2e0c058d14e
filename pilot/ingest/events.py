"""Metrics of commits: push reasons, updates, and events of each kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pilot.config.catalogue import Catalogue
from pilot.ingest.batch import Commit
from pilot.lib.metrics.metrics import Metrics, Update
from pilot.lib.text import one_line


def push_reasons(catalogue: Catalogue, commit: Commit) -> Counter[str]:
    """Return the number of edits for each push reason. The reason is "global" for mesh config and mesh networks."""
    reasons: Counter[str] = Counter()
    for table, count in Counter(table for table, _, _ in commit.edits).items():
        kind = catalogue.find_by_table(table)
        reasons["global" if kind is None else kind.push_reason] += count
    return reasons


def count_updates(metrics: Metrics, catalogue: Catalogue, commit: Commit) -> None:
    """Add the edits of a commit to the update counters."""
    for (table, is_deleted), count in Counter((table, row is None) for table, _, row in commit.edits).items():
        kind = catalogue.find_by_table(table)
        update: Update = "config" if kind is None else kind.update
        metrics.updated("svcdelete" if update == "svc" and is_deleted else update, count)


def count_events(metrics: Metrics, catalogue: Catalogue, commit: Commit) -> None:
    """Add the events of a commit to the event counters. Mesh config and mesh networks are not counted."""
    for (table, event), count in commit.events.items():
        kind = catalogue.find_by_table(table)
        if kind is not None and kind.registry_event:
            metrics.registry_event(kind.registry_event, event, count)
        elif kind is not None:
            metrics.config_event(catalogue.short_name(kind.id), event, count)


def first_and_more(catalogue: Catalogue, commit: Commit) -> str:
    """Return a string that names one changed object as kind/namespace/name, and states the number of other changed
    objects. The named object is the first one of its kind, of the kind whose name is the first."""
    if not commit.edits:
        return "nothing"
    first: dict[str, Any] = {}
    for table, key, _ in commit.edits:
        if table not in first or key < first[table]:
            first[table] = key
    more = f" and {len(commit.edits) - 1} more configs" if len(commit.edits) > 1 else ""
    return one_line(min(_name(catalogue, table, key) for table, key in first.items())) + more


def _name(catalogue: Catalogue, table: str, key: Any) -> str:
    kind = catalogue.find_by_table(table)
    name = catalogue.short_name(kind.id) if kind is not None else table
    return "/".join((name, *map(str, key))) if isinstance(key, tuple) else f"{name}/{key}"
