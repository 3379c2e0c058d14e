"""Log scopes of the process, and their levels."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from types import FrameType
from typing import NamedTuple

from pilot.lib.logging.log import LEVELS, ROOT, scope
from pilot.lib.suggestion import did_you_mean

STACK_DEPTH = 30
"""Maximum number of stack frames written below a message."""
_DESCRIPTIONS = {
    "ads": "xDS streams and pushes",
    "adsc": "connections to xDS configuration servers",
    "analysis": "analysis messages in the status of objects",
    "authn": "authentication of callers",
    "ca": "signing of certificates",
    "config": "configuration sources and invalid configuration",
    "default": "the process, and everything without its own scope",
    "delta": "delta xDS streams",
    "gateway": "deployments of Gateways",
    "http": "HTTP ports",
    "jwks": "fetching of JSON Web Key Sets",
    "kube": "requests to and watches of API servers",
    "leader": "leader election",
    "model": "DNS lookups",
    "rootcertrotator": "rotation of the self-signed root certificate",
    "secretcontroller": "remote clusters",
    "serverca": "certificate signing requests",
    "status": "status of objects; readiness and probes of an agent",
    "tls": "TLS ports and their certificates",
    "webhook": "injection and validation webhooks",
    "wle": "automatic registration of workloads",
}


class ScopeState(NamedTuple):
    """The state of a scope.

    `output_level` is the lowest level at which messages are logged. `stack_trace_level` is the lowest level at which
    they are logged with a stack trace. If `log_callers` is true, messages are logged with their source location. Levels
    are names in `LEVELS`.
    """

    name: str
    description: str
    output_level: str
    stack_trace_level: str
    log_callers: bool


class _Details(logging.Filter):
    """Filter that passes every record.

    It adds the stack and the source location to a record if the scope is configured to do so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack_trace_level = LEVELS["none"]
        self.log_callers = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= self.stack_trace_level:
            record.stack_info = "".join(traceback.format_stack(_calling_frame(), STACK_DEPTH)).rstrip()
        if self.log_callers and (frame := _calling_frame()) is not None:
            record.caller = f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_lineno}"
        return True


def scopes() -> list[ScopeState]:
    """Return all scopes of the process, sorted by name."""
    below = [
        name for name, logger in list(logging.root.manager.loggerDict.items()) if isinstance(logger, logging.Logger)
    ]
    names = {"default", *(name.removeprefix(f"{ROOT}.") for name in below if name.startswith(f"{ROOT}."))}
    return [_state(name) for name in sorted(names)]


def unknown_scopes(levels: Iterable[str]) -> list[str]:
    """Return a warning for each name in log levels that is no scope of the control plane."""
    names = [name for name in levels if name not in _DESCRIPTIONS and name != "all"]
    listing = f"; scopes are {', '.join(sorted(_DESCRIPTIONS))}"
    return [
        f"--log_output_level: log scope {name!r} does not exist{did_you_mean(name, _DESCRIPTIONS) or listing}"
        for name in names
    ]


def find_scope(name: str) -> ScopeState | None:
    """Return a scope, or None if the process has no scope with this name. No scope is created."""
    return next((state for state in scopes() if state.name == name), None)


def set_output_level(name: str, level: str) -> None:
    """Set the level of a scope. Other scopes keep their levels, even if they inherited them from "default"."""
    if name == "default":
        for state in scopes():
            scope(state.name).setLevel(LEVELS[state.output_level])
    scope(name).setLevel(LEVELS[level])


def set_stack_trace_level(name: str, level: str) -> None:
    """Set the lowest level at which messages of a scope are logged with a stack trace."""
    _details(name, make=True).stack_trace_level = LEVELS[level]


def set_log_callers(name: str, enabled: bool) -> None:
    """Set whether messages of a scope are logged with their source location."""
    _details(name, make=True).log_callers = enabled


def _state(name: str) -> ScopeState:
    details = _details(name)
    output, stack = _level_name(scope(name).getEffectiveLevel()), _level_name(details.stack_trace_level)
    return ScopeState(name, _DESCRIPTIONS.get(name, ""), output, stack, details.log_callers)


def _details(name: str, make: bool = False) -> _Details:
    """Return the filter of a scope, or a new filter if the scope has none.

    A new filter is added to the scope only if `make` is true.
    """
    logger = scope(name)
    details = next((f for f in logger.filters if isinstance(f, _Details)), None)
    if details is None:
        details = _Details()
        if make:
            logger.addFilter(details)
    return details


def _level_name(level: int) -> str:
    """Return the name of the lowest level that is at least `level`."""
    return next((name for name, number in LEVELS.items() if number >= level), "none")


def _calling_frame() -> FrameType | None:
    """Return the stack frame that called the logger."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename in (__file__, logging.__file__):
        frame = frame.f_back
    return frame
