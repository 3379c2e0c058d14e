"""Conditions in the status of objects."""

from __future__ import annotations

from typing import NamedTuple


class StatusCondition(NamedTuple):
    """A condition. `type` and `reason` are defined by the object's API; `message` is for people."""

    type: str
    status: bool
    reason: str
    message: str


class Fault(NamedTuple):
    """Reason and message of a condition that is False."""

    reason: str
    message: str


def condition(type_: str, fault: Fault | None, reason: str, message: str) -> StatusCondition:
    """Return a condition that is True with a reason and message, or False because of a fault."""
    return StatusCondition(type_, True, reason, message) if fault is None else StatusCondition(type_, False, *fault)
