"""The debug page push_status, which shows mesh health. It uses the names of istiod's health metrics."""

from __future__ import annotations

from typing import Any

from pilot.debug.health_findings import show_findings
from pilot.debug.page import Indented, Query, TextAnswer
from pilot.debug.sources import Sources


def push_status(sources: Sources, query: Query) -> Any:
    """Return the findings of the last health check, or an empty text before the first check.

    The result maps metrics to keys, and keys to a proxy and a message.
    """
    findings = sources.health()
    if findings is None:
        return TextAnswer("")
    return Indented(show_findings(findings))
