"""Says what is wrong at a place of a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Place = tuple[str | int, ...]
"""The way from a message to a part of it: names of fields, positions in lists, keys of maps."""


class Violation(NamedTuple):
    """One thing that is wrong. `code` is its rule, in kebab case."""

    code: str
    place: Place
    text: str


def shown(place: Sequence[str | int]) -> str:
    """Returns a place as people write it: `filters[0].typed_config`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def as_written(place: Place, plain: Any) -> Place:
    """Returns the place in the spelling of the JSON that a message was read from, as far as the JSON goes: what it does not say has no place."""
    found: list[str | int] = []
    for part in place:
        if isinstance(plain, dict):
            keys = [key for key in plain if key in (part, _camel(str(part)))]
        else:
            keys = [part] if isinstance(plain, list) and isinstance(part, int) and part < len(plain) else []
        if not keys:
            break
        plain = plain[keys[0]]
        found.append(keys[0])
    return tuple(found)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
