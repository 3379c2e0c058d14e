"""The debug page of mesh health, by the names of istiod's health metrics: push_status."""

from __future__ import annotations

from typing import Any

from pilot.debug.health_findings import show_findings
from pilot.debug.page import Indented, Query, TextAnswer
from pilot.debug.sources import Sources


def push_status(sources: Sources, query: Query) -> Any:
    """Return metric → key → proxy and message from the last health check, or an empty text before the first one."""
    findings = sources.health()
    if findings is None:
        return TextAnswer("")
    return Indented(show_findings(findings))
