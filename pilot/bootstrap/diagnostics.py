"""Diagnostics of the process: access to debug pages, the ControlZ port, and stack traces in the log."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import grpc

from pilot.bootstrap.ports import HttpPort
from pilot.controlz.application import application
from pilot.controlz.control import Control
from pilot.debug.access import tenant_of
from pilot.debug.answer_slots import TooManyWaiting
from pilot.debug.over_xds import ask
from pilot.debug.page import Refused
from pilot.debug.sources import Sources
from pilot.lib.build_info import build_info
from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.pprof.stacks import Stack
from pilot.pprof.tasks import tasks, threads
from pilot.xds.authn.identity import Authenticate, Caller, IdentityError, TooManyCallers
from pilot.xds.debug_requests import AnswerDebugRequest, DebugAnswer, DebugRequestError
from pilot.xds.net.listen_address import Address

MAX_TASKS = 200
_DEPTH = 12
_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    409: grpc.StatusCode.INVALID_ARGUMENT,
}
_log = scope("default")


def debug_over_xds(sources: Sources) -> AnswerDebugRequest:
    """Return the function that answers requests for debug pages over xDS."""

    @contextlib.asynccontextmanager
    async def answer(type_url: str, names: Sequence[str], identity: str) -> AsyncIterator[DebugAnswer]:
        identities = (identity,) if identity else ()
        try:
            async with sources.slots.hold(tenant_of(sources, identities)):
                try:
                    response = await ask(sources, type_url, names, identities)
                except Refused as error:
                    raise DebugRequestError(_STATUS[error.status], error.text or _denial(identity)) from error
                yield DebugAnswer(*response)
        except TooManyWaiting as error:
            sources.metrics.caller_limit_exceeded("debug_answers")
            raise DebugRequestError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error

    return answer


def _denial(identity: str) -> str:
    """Return the error message for a caller that has no access."""
    return (
        f'the debug info is not available for current identity: "{identity}"' if identity else "authentication required"
    )


class HttpIdentities:
    """Authenticates HTTP callers by their bearer token, with the same rules as the secure port."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    async def __call__(self, address: str, headers: Mapping[str, str]) -> Sequence[str]:
        """Return the identities of a caller, or () if it is not authenticated. The names in `headers` are in lower
        case.

        Raise Refused with status 429 if too many other callers are waiting.
        """
        try:
            return await self._authenticate(Caller(address, headers))
        except TooManyCallers as error:
            raise Refused(429, str(error)) from error
        except IdentityError:
            return ()


class ControlzPort(HttpPort):
    """The ControlZ port.

    If its address is unavailable, the control plane starts without it. `end` ends the process.
    """

    def __init__(self, address: Address, metrics: Metrics, end: Callable[[], object]) -> None:
        control = Control("pilot-discovery", build_info(), sys.argv, os.environ, metrics.exposition, end, log_stacks)
        super().__init__(application(control), address)
        self._address = address

    async def start(self) -> None:
        """Listen. Log a warning if the address is unavailable."""
        try:
            await super().start()
        except StartError as error:
            _log.warning("ControlZ is not available: %s", error)
        else:
            _log.info("ControlZ available at %s", Address(self._address.host, self.number))


def log_stacks() -> None:
    """Log the stacks of all threads and of up to `MAX_TASKS` tasks, innermost call first. SIGUSR1 calls this."""
    for thread in threads():
        _log.info("stack of thread %s: %s", thread.name, _format_stack(thread.stack))
    for task in itertools.islice(tasks(), MAX_TASKS):
        _log.info("stack of task %s: %s", task.name, _format_stack(task.stack))
    if (omitted := len(asyncio.all_tasks()) - MAX_TASKS) > 0:
        _log.info("omitted the stacks of %d more tasks", omitted)


def _format_stack(stack: Stack) -> str:
    return " in ".join(
        f"{call.function} ({'/'.join(call.file.split('/')[-2:])}:{call.line})" for call in stack[:_DEPTH]
    )
