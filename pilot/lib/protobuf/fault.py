"""Violations, and their places in a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Place = tuple[str | int, ...]
"""The path from a message to a part of it. It consists of field names, list indexes and map keys."""


class Violation(NamedTuple):
    """A violation of a rule. `code` identifies the rule, in kebab case."""

    code: str
    place: Place
    text: str


def shown(place: Sequence[str | int]) -> str:
    """Return a place as a string such as `filters[0].typed_config`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def as_written(place: Place, plain: Any) -> Place:
    """Return a place with the keys as they are spelled in `plain`, the JSON from which the message was decoded.

    The result ends before the first part that is not in `plain`.
    """
    written: list[str | int] = []
    for part in place:
        if isinstance(plain, dict):
            key = next((key for key in (part, _camel(str(part))) if key in plain), None)
        else:
            key = part if isinstance(plain, list) and isinstance(part, int) and part < len(plain) else None
        if key is None:
            break
        plain = plain[key]
        written.append(key)
    return tuple(written)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
