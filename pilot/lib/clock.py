"""Formats times."""

from __future__ import annotations

import datetime


def rfc3339(seconds: float) -> str:
    """Format Unix seconds as a UTC time with microseconds, such as 2026-01-02T03:04:05.000006Z."""
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
