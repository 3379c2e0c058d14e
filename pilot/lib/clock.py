"""Formats of the time of day."""

from __future__ import annotations

import datetime


def rfc3339(seconds: float) -> str:
    """Return Unix seconds as UTC with microseconds, such as 2026-01-02T03:04:05.000006Z."""
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
