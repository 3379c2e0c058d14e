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
    """Return a condition that is False with the reason and message of `fault` or, if there is no fault, True with the
    others."""
    return StatusCondition(type_, True, reason, message) if fault is None else StatusCondition(type_, False, *fault)
