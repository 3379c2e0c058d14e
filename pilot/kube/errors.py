"""Everything that can go wrong with an API server.

KubeError
├─ ConfigurationError    a kubeconfig or what it names cannot be used
├─ Unreachable           no answer, or one that ends too early
└─ ApiError              the server refuses
   ├─ NotFound           404
   ├─ Conflict           409: someone else was faster, or it exists already
   └─ Expired            410: the server has forgotten what happened since
"""

from __future__ import annotations

import msgspec

from pilot.lib.text import cut


class KubeError(Exception):
    """The API server did not do what it was asked for."""


class ConfigurationError(KubeError):
    """A kubeconfig, or what it names, cannot be used."""


class Unreachable(KubeError):
    """There is no answer, or one that ends too early."""


class ApiError(KubeError):
    """The server refuses. `retry_after`: the seconds that it asks to wait, 0 where it does not say."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{code} {reason}: {cut(message, 500)}" if message else f"{code} {reason}")
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


class NotFound(ApiError):
    """There is no such object, or no such resource."""


class Conflict(ApiError):
    """Someone else was faster, or an object of that name exists already."""


class Expired(ApiError):
    """The server has forgotten what happened since then."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0


class Status(msgspec.Struct):
    """The object that says why a server refuses."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_KINDS: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Expired}


def error_from_status(status: Status, retry_after: float = 0.0) -> ApiError:
    """Returns the error that a status is."""
    wanted = status.details.retry_after_seconds if status.details is not None else 0.0
    return _KINDS.get(status.code, ApiError)(status.code, status.reason, status.message, max(retry_after, wanted))


def error_from_response(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """Returns the error that an answer is; `retry_after` is its header of that name."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        status = Status(message=body[:500].decode(errors="replace"))
    status.code = code
    return error_from_status(status, float(retry_after) if retry_after.isdecimal() else 0.0)
