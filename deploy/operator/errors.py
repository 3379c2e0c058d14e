"""Errors in the settings of an installation."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import Problem


class SettingsError(Exception):
    """Settings are invalid. The message contains the location and the reason."""


def describe_problems(problems: Iterable[Problem]) -> str:
    """Return problems as one string. Each problem has its path."""
    return "; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems)
