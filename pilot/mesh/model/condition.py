"""Conditions in the status of objects."""

from __future__ import annotations

from typing import NamedTuple


class StatusCondition(NamedTuple):
    """A condition. The object's API defines `type` and `reason`. `message` is for people."""

    type: str
    status: bool
    reason: str
    message: str


class Fault(NamedTuple):
    """The reason and message of a condition whose status is False."""

    reason: str
    message: str


def condition(type_: str, fault: Fault | None, reason: str, message: str) -> StatusCondition:
    """Return a condition. If there is a fault, the status is False, with the reason and message of `fault`. Otherwise,
    the status is True, with `reason` and `message`."""
    return StatusCondition(type_, True, reason, message) if fault is None else StatusCondition(type_, False, *fault)
