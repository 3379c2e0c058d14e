"""A field of an authorization rule. It matches if one of its values matches and none of its negative values does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

M = TypeVar("M")
Build = Callable[[Sequence[str]], M | None]
"""A function that builds a message that matches if any of the values does.

It returns None if Envoy cannot express one of the values.
"""


class RbacField(NamedTuple, Generic[M]):
    """The values of a field, and the builder of its messages."""

    values: Sequence[str]
    not_values: Sequence[str]
    build: Build[M]


def each(build_one: Callable[[str], M | None], match_any: Callable[[list[M]], M]) -> Build[M]:
    """Return a builder that builds a message for each value and combines the messages with `match_any`."""

    def build(values: Sequence[str]) -> M | None:
        messages = [m for value in values if (m := build_one(value)) is not None]
        return match_any(messages) if len(messages) == len(values) else None

    return build


def inexpressible(_: Sequence[str]) -> None:
    """The builder for fields that do not apply, such as the path of a TCP connection. It always returns None."""
    return


def build_fields(fields: Iterable[RbacField[M]], negate: Callable[[M], M], allows: bool) -> list[M] | None:
    """Return the messages of all fields.

    `allows` is set for rules that grant access. The result is then None if any field cannot be expressed. For other
    rules, fields that cannot be expressed are omitted.
    """
    messages: list[M] = []
    for field in fields:
        for values, positive in ((field.values, True), (field.not_values, False)):
            if not values:
                continue
            message = field.build(values)
            if message is not None:
                messages.append(message if positive else negate(message))
            elif allows:
                return None
    return messages
