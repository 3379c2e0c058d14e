"""What is odd about the mesh without being anybody's mistake: push_status, by the names of istiod's health metrics."""

from __future__ import annotations

from typing import Any

from pilot.debug.health_findings import show_findings
from pilot.debug.page import Indented, Query, TextAnswer
from pilot.debug.sources import Sources


def push_status(sources: Sources, query: Query) -> Any:
    """Returns metric → key → proxy and message, as it was when it was looked at last; nothing at all before the first time."""
    found = sources.health()
    if found is None:
        return TextAnswer("")
    return Indented(show_findings(found))
