"""Checks of objects against others, and how their problems are told."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from pilot.config.object import Object
from pilot.config.problem import Problem
from pilot.derive import Derived


class Check(NamedTuple):
    """A check looks at `problems(db, key)` for each of the keys that `keys(db)` lists. `name` says what the keys are of."""

    name: str
    keys: Derived[[], tuple[Any, ...]]
    problems: Derived[[Any], tuple[Problem, ...]]

    def place(self, key: Hashable) -> tuple[str, str]:
        """Returns what the problems of one key are stored under."""
        return self.name, "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def told(o: Object[Any], found: Iterable[Problem]) -> tuple[Problem, ...]:
    """Returns the problems of an object, each once, under its name."""
    return tuple(dict.fromkeys(replace(problem, object=o.ref) for problem in found))
