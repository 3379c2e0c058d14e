"""Logs in Istio's shape: time, level, scope and message between tabs, or a JSON object a line.

Scopes are loggers below "pilot"; the scope "default" is "pilot" itself and is not printed.
https://istio.io/latest/docs/ops/diagnostic-tools/component-logging/
"""
from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable

from pilot.lib.clock import rfc3339

ROOT = "pilot"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR, "fatal": logging.CRITICAL, "none": 100}
_NAMES = {number: name for name, number in LEVELS.items()}


def scope(name: str) -> logging.Logger:
    """The logger of a scope."""
    return logging.getLogger(ROOT if name == "default" else f"{ROOT}.{name}")


def configure(levels: str, as_json: bool, targets: Iterable[str]) -> None:
    """Send all logs to stdout, stderr or files, at levels as "scope:level,…". ValueError where one of them makes no sense."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # what no line shows costs half of making it
    logging._srcfile = None  # https://docs.python.org/3/howto/logging.html#optimization
    parsed = parse_levels(levels)
    formatter = JsonLine() if as_json else TabbedLine()
    root = scope("default")
    root.propagate = False
    root.handlers[:] = [_handler(target) for target in targets]
    for handler in root.handlers:
        handler.setFormatter(formatter)
    root.setLevel(parsed.pop("default", logging.INFO))
    everywhere = parsed.pop("all", None)
    for name, level in parsed.items():
        scope(name).setLevel(level)
    if everywhere is not None:
        root.setLevel(everywhere)
        for name in parsed:
            scope(name).setLevel(logging.NOTSET)


def parse_levels(text: str) -> dict[str, int]:
    """ "default:info,ads:debug" as level numbers by scope; a level alone is that of "default"."""
    levels: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, colon, level = part.rpartition(":")
        if level not in LEVELS:
            raise ValueError(f"{level!r} is not a log level: use {', '.join(LEVELS)}")
        levels[name if colon else "default"] = LEVELS[level]
    return levels


def _handler(target: str) -> logging.Handler:
    if target in ("stdout", "stderr"):
        return logging.StreamHandler(getattr(sys, target))
    try:
        return logging.FileHandler(target)
    except OSError as error:
        raise ValueError(f"cannot log to {target!r}: {error.strerror}") from error


class TabbedLine(logging.Formatter):
    """2026-01-02T03:04:05.000006Z	info	ads	message"""

    def format(self, record: logging.LogRecord) -> str:
        parts = [rfc3339(record.created), level_name(record), scope_name(record), record.getMessage()]
        line = "\t".join(part for part in parts if part)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLine(logging.Formatter):
    """{"level":"info","time":"…","scope":"ads","msg":"…"}"""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"level": level_name(record), "time": rfc3339(record.created), "scope": scope_name(record), "msg": record.getMessage()}
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in fields.items() if value}, separators=(",", ":"))


def level_name(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname.lower())


def scope_name(record: logging.LogRecord) -> str:
    """ "" for the default scope."""
    return record.name.removeprefix(ROOT).removeprefix(".")
