"""Metrics of unary gRPC calls, with the names that Go's gRPC middleware uses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from pilot.lib.metrics.series import Series

UNARY = "unary"
# https://grpc.github.io/grpc/core/md_doc_statuscodes.html in Go's spelling
_CODES = (
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)


def go_name(code: int) -> str:
    """Return the name of a gRPC status code in Go's spelling."""
    return _CODES[code] if 0 <= code < len(_CODES) else f"Code({code})"


class CallMetrics:
    """Counters and latencies of unary calls."""

    def __init__(self, series: Series) -> None:
        self._at = series.at

    @contextlib.contextmanager
    def unary(self, service: str, method: str) -> Iterator[list[str]]:
        """Measure the handling of one call.

        The context value is a list, to which the handler appends the name of the status code in Go's spelling. The
        default is "OK", or "Unknown" after an exception.
        """
        labels = method, service, UNARY
        codes: list[str] = []
        self._at("grpc_server_started_total", *labels).inc()
        self._at("grpc_server_msg_received_total", *labels).inc()
        started = time.monotonic()
        try:
            yield codes
        except BaseException:
            self._handled(labels, codes[-1] if codes else "Unknown", started)
            raise
        self._handled(labels, codes[-1] if codes else "OK", started)
        if not codes:
            self._at("grpc_server_msg_sent_total", *labels).inc()

    def _handled(self, labels: tuple[str, str, str], code: str, started: float) -> None:
        self._at("grpc_server_handled_total", code, *labels).inc()
        self._at("grpc_server_handling_seconds", *labels).observe(time.monotonic() - started)
