"""Conditions: what is told of an object in its status."""

from __future__ import annotations

from typing import NamedTuple


class StatusCondition(NamedTuple):
    """One aspect of an object. `type` and `reason` are the words of its API, `message` is for people."""

    type: str
    status: bool
    reason: str
    message: str


class Fault(NamedTuple):
    """The reason why a condition does not hold."""

    reason: str
    message: str


def condition(type_: str, fault: Fault | None, reason: str, message: str) -> StatusCondition:
    """Returns a condition that holds for a reason, or does not because of a fault."""
    return StatusCondition(type_, True, reason, message) if fault is None else StatusCondition(type_, False, *fault)
