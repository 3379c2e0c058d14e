"""Scopes of the log, as JSON and changed by it."""

from __future__ import annotations

from typing import Any

import msgspec

from pilot.lib.log import LEVELS
from pilot.lib.log_scopes import (
    ScopeState,
    find_scope,
    scopes,
    set_log_callers,
    set_output_level,
    set_stack_trace_level,
)
from pilot.lib.text import cut, one_line

SHOWN = 100
"""Characters that are repeated of what somebody sent."""


class WrongRequestError(Exception):
    """A request that makes no sense; the text is for whoever sent it."""


class ScopeChange(msgspec.Struct):
    """What a scope is to have from now on. What is not said, or empty, stays."""

    output_level: str = ""
    stack_trace_level: str = ""
    log_callers: bool | None = None


def all_scopes() -> list[dict[str, Any]]:
    """Returns every scope, by name."""
    return [state._asdict() for state in scopes()]


def one_scope(name: str) -> dict[str, Any]:
    """Returns one scope. WrongRequestError where there is none of that name."""
    return _find(name)._asdict()


def change_scope(name: str, body: bytes) -> None:
    """Changes a scope to what a body says, all of it or nothing. WrongRequestError where there is no such scope, or the body makes no sense."""
    _find(name)
    try:
        change = msgspec.json.decode(body, type=ScopeChange)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongRequestError(f"unable to decode request: {one_line(str(error))}") from None
    for field in ("output_level", "stack_trace_level"):
        level = getattr(change, field)
        if level and level not in LEVELS:
            raise WrongRequestError(f"{field}: {_shown(level)!r} is not a log level: use {', '.join(LEVELS)}")
    if change.output_level:
        set_output_level(name, change.output_level)
    if change.stack_trace_level:
        set_stack_trace_level(name, change.stack_trace_level)
    if change.log_callers is not None:
        set_log_callers(name, change.log_callers)


def _find(name: str) -> ScopeState:
    state = find_scope(name)
    if state is None:
        raise WrongRequestError(f"unknown scope name: {_shown(name)}")
    return state


def _shown(text: str) -> str:
    return cut(one_line(text), SHOWN)
