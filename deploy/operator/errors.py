"""Errors in the settings of an installation."""

from __future__ import annotations

from collections.abc import Iterable

from deploy.operator.input_origin import InputOrigin
from pilot.config.problem import Problem


class SettingsError(Exception):
    """Settings are invalid. The message contains the location and the reason."""


def describe_problems(problems: Iterable[Problem], origin: InputOrigin) -> str:
    """Return problems as one string. Each problem has its place, if it is known, and its path."""
    return "; ".join(f"{origin.place(p.path)}{p.path}: {p.message}" if p.path else p.message for p in problems)
