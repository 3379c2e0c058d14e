"""Scopes of the log as they are while the process runs: which there are, and how much each of them says."""

from __future__ import annotations

import logging
import sys
import traceback
from types import FrameType
from typing import NamedTuple

from pilot.lib.log import LEVELS, ROOT, scope

STACK_DEPTH = 30
"""Calls of a stack that are written below a message."""
_DESCRIPTIONS = {
    "ads": "streams of proxies, and what is sent on them",
    "adsc": "streams to a server of configuration",
    "analysis": "what is written into objects of what is wrong with them",
    "authn": "who callers are",
    "ca": "certificates that are signed",
    "config": "configuration that is read, and what is wrong with it",
    "default": "the process, and whatever has no scope of its own",
    "delta": "streams of proxies that are sent differences",
    "gateway": "what is deployed for Gateways",
    "http": "the ports of HTTP",
    "jwks": "key sets of issuers of tokens",
    "kube": "API servers, and what is followed there",
    "leader": "which replica leads",
    "model": "names of hosts that are looked up",
    "rootcertrotator": "renewal of the authority's own root",
    "secretcontroller": "other clusters",
    "serverca": "requests for certificates",
    "status": "statuses of objects; readiness and probes of an agent",
    "tls": "ports with TLS and their certificates",
    "webhook": "injection and validation",
    "wle": "workloads that register themselves",
}


class ScopeState(NamedTuple):
    """What one scope says: messages from `output_level` on, with the stack from `stack_trace_level` on, and with the place in the code where
    `log_callers`. Levels are names of `LEVELS`."""

    name: str
    description: str
    output_level: str
    stack_trace_level: str
    log_callers: bool


class _Details(logging.Filter):
    """A filter that lets everything pass and adds to it the stack and the caller, where a scope is to have them."""

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
    """Returns every scope that the process has, by name."""
    below = [
        name for name, logger in list(logging.root.manager.loggerDict.items()) if isinstance(logger, logging.Logger)
    ]
    names = {"default", *(name.removeprefix(f"{ROOT}.") for name in below if name.startswith(f"{ROOT}."))}
    return [_state(name) for name in sorted(names)]


def find_scope(name: str) -> ScopeState | None:
    """Returns a scope; None where the process has none of that name. None is made by asking."""
    return next((state for state in scopes() if state.name == name), None)


def set_output_level(name: str, level: str) -> None:
    """Has a scope say messages from a level on, and leaves every other scope as it is, also where it had its level from "default"."""
    if name == "default":
        for state in scopes():
            scope(state.name).setLevel(LEVELS[state.output_level])
    scope(name).setLevel(LEVELS[level])


def set_stack_trace_level(name: str, level: str) -> None:
    """Has a scope write its stack below messages from a level on."""
    _details(name, make=True).stack_trace_level = LEVELS[level]


def set_log_callers(name: str, wanted: bool) -> None:
    """Has a scope say, or no longer say, where in the code a message comes from."""
    _details(name, make=True).log_callers = wanted


def _state(name: str) -> ScopeState:
    details = _details(name)
    output, stack = _level_name(scope(name).getEffectiveLevel()), _level_name(details.stack_trace_level)
    return ScopeState(name, _DESCRIPTIONS.get(name, ""), output, stack, details.log_callers)


def _details(name: str, make: bool = False) -> _Details:
    """Returns the details of a scope, which are its own only where they were made; a scope without costs nothing."""
    logger = scope(name)
    found = next((f for f in logger.filters if isinstance(f, _Details)), None)
    if found is None:
        found = _Details()
        if make:
            logger.addFilter(found)
    return found


def _level_name(level: int) -> str:
    """Returns the name of the level from which on messages of `level` are said."""
    return next((name for name, number in LEVELS.items() if number >= level), "none")


def _calling_frame() -> FrameType | None:
    """Returns the frame that called the logger."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename in (__file__, logging.__file__):
        frame = frame.f_back
    return frame
