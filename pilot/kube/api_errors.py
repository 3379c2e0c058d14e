"""Errors of requests to an API server.

KubeError
├─ ConfigurationError    a kubeconfig, or a file that it refers to, is unusable
├─ Unreachable           there is no response, or it ends too early
├─ ResponseTooLarge              a response, or a line of it, exceeds the maximum size
└─ ApiError              the server rejects the request
   ├─ NotFound           404
   ├─ Conflict           409: the object exists already or was changed concurrently
   └─ Expired            410: the resource version is no longer available
"""

from __future__ import annotations

import msgspec

from pilot.lib.text import cut

LONGEST_DELAY = 300.0
"""Maximum delay in seconds that a server may ask for. If it asks for more, such as infinity, this maximum is used."""


class KubeError(Exception):
    """A request to the API server failed."""


class ConfigurationError(KubeError):
    """A kubeconfig, or a file that it refers to, is unusable."""


class Unreachable(KubeError):
    """There is no response, or it ends too early."""


class ResponseTooLarge(KubeError):
    """A response, or a line of a streaming response, exceeds the maximum size."""


class ApiError(KubeError):
    """The server rejects the request. `retry_after` is the delay in seconds that the server asks for, or 0."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        status = f"{code} {reason}".rstrip()
        super().__init__(f"{status}: {cut(message, 500)}" if message else status)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


class NotFound(ApiError):
    """The object or resource does not exist."""


class Conflict(ApiError):
    """The object already exists or was changed concurrently."""


class Expired(ApiError):
    """The resource version is no longer available."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0


class Status(msgspec.Struct):
    """The Status object in the body of an error response."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_HTML = "the response is an HTML page, so it is not from a Kubernetes API server"
_KINDS: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Expired}


def error_from_status(status: Status, retry_after: float = 0.0) -> ApiError:
    """Return the error for a Status object."""
    delay = status.details.retry_after_seconds if status.details is not None else 0.0
    delay = min(max(retry_after, delay), LONGEST_DELAY)
    return _KINDS.get(status.code, ApiError)(status.code, status.reason, status.message, delay)


def error_from_response(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the error for a response. `retry_after` is the value of the Retry-After header.

    A page for browsers does not mean that an object does not exist, because it is not from an API server.
    """
    delay = float(retry_after) if retry_after.isdecimal() else 0.0
    if body.lstrip()[:1] == b"<":
        return ApiError(code, "", _HTML, min(delay, LONGEST_DELAY))
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        status = Status(message=body[:500].decode(errors="replace").strip())
    status.code = code
    return error_from_status(status, delay)
