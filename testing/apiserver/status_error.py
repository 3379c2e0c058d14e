"""API errors and their Status objects."""

from __future__ import annotations

from typing import Any

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Exception):
    """An API error. `code` is the HTTP status, `retry_after` the seconds of the Retry-After header."""

    def __init__(
        self,
        code: int,
        message: str,
        reason: str = "",
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason or REASONS.get(code, "Unknown")
        self.retry_after, self.details = retry_after, details or {}

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        details = self.details | ({"retryAfterSeconds": self.retry_after} if self.retry_after is not None else {})
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
            **({"details": details} if details else {}),
        }


def not_found(plural: str, group: str, name: str) -> StatusError:
    resource = f"{plural}.{group}" if group else plural
    return StatusError(404, f'{resource} "{name}" not found', details={"name": name, "group": group, "kind": plural})


def expired(revision: int, oldest: int) -> StatusError:
    return StatusError(410, f"too old resource version: {revision} ({oldest})")
