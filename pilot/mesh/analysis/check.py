"""Checks between objects."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from pilot.config.object import Object
from pilot.config.problem import Problem, about
from pilot.derive import Derived


class Check(NamedTuple):
    """A check. `keys(db)` returns the keys of all objects to check, and `problems(db, key)` returns the problems of one
    of them.

    `name` says what the keys identify, for example a kind.
    """

    name: str
    keys: Derived[[], tuple[Any, ...]]
    problems: Derived[[Any], tuple[Problem, ...]]

    def place(self, key: Hashable) -> tuple[str, str]:
        """Return the key under which the problems of one object are stored."""
        return self.name, "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def attribute(o: Object[Any], problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems of an object, without duplicates and up to the maximum number.

    Each problem refers to the object or, if it was derived from others, to the first of them, of which it has no path.
    """
    if o.origin is not None and o.origin.parents:
        source = o.origin.parents[0]
        general = (replace(problem, path="spec", line=0) for problem in problems)
        return tuple(about(source, dict.fromkeys(general)))
    return tuple(about(o.ref, dict.fromkeys(problems)))
