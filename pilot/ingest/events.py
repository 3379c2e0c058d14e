"""Batches in the words of the metrics: why there is a push, which updates came in, what happened to objects by kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pilot.config.catalogue import Catalogue
from pilot.ingest.batch import Commit
from pilot.lib.metrics import Metrics, Update
from pilot.lib.text import one_line


def push_reasons(catalogue: Catalogue, commit: Commit) -> Counter[str]:
    """Returns how many edits of a batch there are for each reason of a push. Mesh config and networks concern everybody."""
    kinds = (catalogue.find_by_table(table) for table, _, _ in commit.edits)
    return Counter("global" if kind is None else kind.push_reason for kind in kinds)


def count_updates(metrics: Metrics, catalogue: Catalogue, commit: Commit) -> None:
    """Adds the edits of a batch to the counter of updates."""
    for (table, gone), count in Counter((table, row is None) for table, _, row in commit.edits).items():
        kind = catalogue.find_by_table(table)
        update: Update = "config" if kind is None else kind.update
        metrics.updated("svcdelete" if update == "svc" and gone else update, count)


def count_events(metrics: Metrics, catalogue: Catalogue, commit: Commit) -> None:
    """Adds a batch to the counters of events. Mesh config and networks are not objects and do not count."""
    for (table, event), count in commit.events.items():
        kind = catalogue.find_by_table(table)
        if kind is not None and kind.registry_event:
            metrics.registry_event(kind.registry_event, event, count)
        elif kind is not None:
            metrics.config_event(catalogue.short_name(kind.id), event, count)


def first_and_more(catalogue: Catalogue, commit: Commit) -> str:
    """Returns the first of the objects of a batch, in the order of their names, as kind/namespace/name, and how many more there are."""
    named = sorted(_named(catalogue, table, key) for table, key, _ in commit.edits)
    more = f" and {len(named) - 1} more configs" if len(named) > 1 else ""
    return one_line(named[0]) + more if named else "nothing"


def _named(catalogue: Catalogue, table: str, key: Any) -> str:
    kind = catalogue.find_by_table(table)
    name = catalogue.short_name(kind.id) if kind is not None else table
    return "/".join((name, *map(str, key))) if isinstance(key, tuple) else f"{name}/{key}"
