"""A field of a rule and what it becomes: one of its values has to hold, and none of its negative ones may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

M = TypeVar("M")
Build = Callable[[Sequence[str]], M | None]
"""Returns what any of the values meets; None where some of them cannot be said to Envoy."""


class RbacField(NamedTuple, Generic[M]):
    """Holds the values of a field, and what builds its message."""

    values: Sequence[str]
    not_values: Sequence[str]
    build: Build[M]


def each(one: Callable[[str], M | None], any_of: Callable[[list[M]], M]) -> Build[M]:
    """Returns the builder of values that are built one by one."""

    def build(values: Sequence[str]) -> M | None:
        built = [m for value in values if (m := one(value)) is not None]
        return any_of(built) if len(built) == len(values) else None

    return build


def unsayable(_: Sequence[str]) -> None:
    """Builds what Envoy cannot be told here, such as the path of a connection."""
    return


def build_fields(fields: Iterable[RbacField[M]], negated: Callable[[M], M], allows: bool) -> list[M] | None:
    """Returns what all of the fields become. `allows`: the rule lets something through, so that one that cannot be said whole is None;
    of any other rule the condition that cannot be said is left out."""
    found: list[M] = []
    for field in fields:
        for values, positive in ((field.values, True), (field.not_values, False)):
            if not values:
                continue
            built = field.build(values)
            if built is not None:
                found.append(built if positive else negated(built))
            elif allows:
                return None
    return found
