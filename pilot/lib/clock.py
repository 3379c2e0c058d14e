"""The time of day, and how it is written."""

from __future__ import annotations

import datetime


def rfc3339(seconds: float) -> str:
    """Returns Unix seconds in UTC to the microsecond: 2026-01-02T03:04:05.000006Z."""
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
