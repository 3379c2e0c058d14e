"""Log scopes as JSON, and changes to them."""

from __future__ import annotations

from typing import Any

import msgspec

from pilot.lib.logging.log import LEVELS
from pilot.lib.logging.scopes import (
    ScopeState,
    find_scope,
    scopes,
    set_log_callers,
    set_output_level,
    set_stack_trace_level,
)
from pilot.lib.text import cut, one_line

ECHO_LENGTH = 100
"""Maximum number of characters of a request that are repeated in an error message."""


class WrongRequestError(Exception):
    """A request is invalid. The message is for the client."""


class ScopeChange(msgspec.Struct):
    """Changes to a log scope. Fields that are absent or empty remain unchanged."""

    output_level: str = ""
    stack_trace_level: str = ""
    log_callers: bool | None = None


def all_scopes() -> list[dict[str, Any]]:
    """Return all log scopes, sorted by name."""
    return [state._asdict() for state in scopes()]


def one_scope(name: str) -> dict[str, Any]:
    """Return a log scope. Raise WrongRequestError if it does not exist."""
    return _find(name)._asdict()


def change_scope(name: str, body: bytes) -> None:
    """Apply the change in a request body, either completely or not at all.

    Raise WrongRequestError if the scope does not exist or the body is invalid.
    """
    _find(name)
    try:
        change = msgspec.json.decode(body, type=ScopeChange)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongRequestError(f"unable to decode request: {one_line(str(error))}") from None
    for field in ("output_level", "stack_trace_level"):
        level = getattr(change, field)
        if level and level not in LEVELS:
            raise WrongRequestError(f"{field}: {_echo(level)!r} is not a log level: use {', '.join(LEVELS)}")
    if change.output_level:
        set_output_level(name, change.output_level)
    if change.stack_trace_level:
        set_stack_trace_level(name, change.stack_trace_level)
    if change.log_callers is not None:
        set_log_callers(name, change.log_callers)


def _find(name: str) -> ScopeState:
    state = find_scope(name)
    if state is None:
        raise WrongRequestError(f"unknown scope name: {_echo(name)}")
    return state


def _echo(text: str) -> str:
    return cut(one_line(text), ECHO_LENGTH)
