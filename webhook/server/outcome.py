"""Results of worker processes: the outcomes of admission reviews and of rendering Gateways."""

from __future__ import annotations

import logging
from typing import Literal

import msgspec

from pilot.lib.logging.log import message, trace
from webhook.server.review import GroupVersionResource

MAX_LINES = 20
"""Maximum number of log lines for one admission review."""


class LogLine(msgspec.Struct, array_like=True, frozen=True):
    """A line for the log. `scope` is the name of its logger."""

    scope: str
    level: int
    text: str


class Validation(msgspec.Struct, array_like=True, frozen=True):
    """The result of a validation, as counted in the metrics. `reason` is "" if the object is valid."""

    resource: GroupVersionResource
    reason: str = ""


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """The outcome of a job.

    `body` is the response to an admission review, or the objects of a Gateway as a JSON list. `error` is the reason why
    a Gateway cannot be deployed. `exceeded` is the limit that a review exceeded (see `JobError`), or "".
    """

    body: bytes
    injection: Literal["", "skipped", "failed"] = ""
    validation: Validation | None = None
    error: str = ""
    lines: tuple[LogLine, ...] = ()
    exceeded: str = ""


class LogBuffer(logging.Handler):
    """Collects the log lines of a job, because only the main process writes the log."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) < MAX_LINES:
            text = message(record)
            if record.exc_info:
                text += f"\n{trace(logging.Formatter(), record)}"
            self._lines.append(LogLine(record.name, record.levelno, text))

    def take(self) -> tuple[LogLine, ...]:
        """Remove the collected lines and return them."""
        lines, self._lines = tuple(self._lines), []
        return lines
