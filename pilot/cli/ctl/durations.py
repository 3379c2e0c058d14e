"""Durations in options of commands."""

from __future__ import annotations

import click

from pilot.lib.duration import parse_duration


def parse_seconds(text: str, option: str) -> float:
    """Return the seconds of a duration that is not negative. Raise BadParameter if it is invalid."""
    try:
        seconds = parse_duration(text).seconds
    except ValueError as error:
        suggestion = f"; did you mean {text}s?" if text.isascii() and text.isdecimal() else ""
        hint = suggestion or ": use a number with a unit, such as 300s or 5m"
        raise click.BadParameter(f"{error}{hint}", param_hint=f"'{option}'") from error
    if seconds < 0:
        raise click.BadParameter(f"{text} is negative", param_hint=f"'{option}'")
    return seconds
