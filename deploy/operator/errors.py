"""What is wrong with an installation's settings."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import Problem


class SettingsError(Exception):
    """Settings cannot be used. The text says where and why."""


def said(problems: Iterable[Problem]) -> str:
    """Returns problems as one text, each with its path."""
    return "; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems)
