"""Logs in Istio's format. A line contains time, level, scope and message, separated by tabs, or is a JSON object.

Scopes are loggers below "pilot". The scope "default" is the logger "pilot" and is not printed.
https://istio.io/latest/docs/ops/diagnostic-tools/component-logging/
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping

from pilot.lib.clock import rfc3339
from pilot.lib.logging.outlet import Outlet, open_target
from pilot.lib.logging.repeats import Repeats
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import cut, one_line

ROOT = "pilot"
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "none": 100,
}
_NAMES = {number: name for name, number in LEVELS.items()}
ARGUMENT_LENGTH = 1000
MESSAGE_LENGTH = 8000
"""Maximum number of characters in a message, because strings from clients and users can be of any length."""


def scope(name: str) -> logging.Logger:
    """Return the logger of a scope."""
    return logging.getLogger(ROOT if name == "default" else f"{ROOT}.{name}")


def configure(levels: str, as_json: bool, targets: Iterable[str]) -> None:
    """Send all logs to stdout, stderr or files. Raise ValueError with the flag if a level or target is invalid.

    `levels` has the format "scope:level,…".
    """
    # Records without these fields, which no line shows, cost half as much.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # https://docs.python.org/3/howto/logging.html#optimization
    try:
        parsed = parse_levels(levels)
    except ValueError as error:
        raise ValueError(f"--log_output_level: {error}") from error
    formatter = JsonLine() if as_json else TabbedLine()
    root = scope("default")
    root.propagate = False
    root.handlers[:] = [Outlet(open_target(target)) for target in targets]
    for handler in root.handlers:
        handler.setFormatter(formatter)
        handler.addFilter(Repeats())
    root.setLevel(parsed.pop("default", logging.INFO))
    everywhere = parsed.pop("all", None)
    for name, level in parsed.items():
        scope(name).setLevel(level)
    if everywhere is not None:
        root.setLevel(everywhere)
        for name in parsed:
            scope(name).setLevel(logging.NOTSET)


def watch_drops(on_drop: Callable[[int], None]) -> None:
    """Call `on_drop` with the number of lines that are dropped because nothing reads a log.

    `on_drop` may be called in any thread.
    """
    for handler in scope("default").handlers:
        if isinstance(handler, Outlet):
            handler.on_drop = on_drop


def parse_levels(text: str) -> dict[str, int]:
    """Return the levels in a string such as "default:info,ads:debug" as numbers, keyed by scope.

    A level without a scope applies to the scope "default".
    """
    levels: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, colon, level = part.rpartition(":")
        if level not in LEVELS:
            raise ValueError(_explain_level(name, level))
        levels[name if colon else "default"] = LEVELS[level]
    return levels


def _explain_level(name: str, level: str) -> str:
    """Return the message about a word that is not a level. `name` is its scope, or ""."""
    scope_, equals, value = level.partition("=")
    if equals and not name and value in LEVELS:
        return f"{level!r}: use '{scope_}:{value}'"
    if name in LEVELS:
        return f"{level!r} is not a log level; did you mean {level}:{name}?"
    place = f"{name}: " if name else ""
    return f"{place}{level!r} is not a log level{did_you_mean(level, LEVELS)}; levels are {', '.join(LEVELS)}"


class TabbedLine(logging.Formatter):
    """Formats a record as a line of fields that are separated by tabs:

        2026-01-02T03:04:05.000006Z  info  ads  message

    A message is always one line. Lines of a traceback are indented, so that none of them can be mistaken for a message.
    """

    def format(self, record: logging.LogRecord) -> str:
        parts = [
            rfc3339(record.created),
            level_name(record),
            scope_name(record),
            caller(record),
            one_line(message(record)),
        ]
        parts += [f"{name}={one_line(str(value))}" for name, value in fields_of(record).items()]
        line = "\t".join(part for part in parts if part)
        return "\n".join(
            (line, *(f"  {one_line(below)}" for text in traces(self, record) for below in text.split("\n")))
        )


class JsonLine(logging.Formatter):
    """Formats a record as JSON: {"level":"info","time":"…","scope":"ads","msg":"…"}.

    The fields of the record follow, and keep their JSON types.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "level": level_name(record),
            "time": rfc3339(record.created),
            "scope": scope_name(record),
            "msg": message(record),
        }
        fields["caller"], fields["stack"] = caller(record), "\n".join(traces(self, record))
        standard = {name: value for name, value in fields.items() if value}
        return json.dumps(
            standard | {name: value for name, value in fields_of(record).items() if name not in standard},
            separators=(",", ":"),
            default=str,
        )


def fields(**values: object) -> dict[str, object]:
    """Return the `extra` argument of a logging call that adds fields to the line.

    The fields are `name=value` pairs at the end of a line, or JSON keys.
    """
    return {"fields": values}


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields of a record. Long strings are truncated."""
    values: Mapping[str, object] = getattr(record, "fields", {})
    return {name: cut(value, ARGUMENT_LENGTH) if isinstance(value, str) else value for name, value in values.items()}


def message(record: logging.LogRecord) -> str:
    """Return the message of a record. Each argument and the whole message are truncated."""
    text = str(record.msg)
    if isinstance(record.args, tuple) and record.args:
        text %= tuple(
            cut(argument, ARGUMENT_LENGTH) if isinstance(argument, str) else argument for argument in record.args
        )
    elif record.args:
        text %= record.args
    return cut(text, MESSAGE_LENGTH)


def trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback of a record. It is truncated in the middle, because the error itself is at the end."""
    text = formatter.formatException(record.exc_info) if record.exc_info else ""
    return text if len(text) <= 2 * MESSAGE_LENGTH else f"{cut(text, MESSAGE_LENGTH)}\n{text[-MESSAGE_LENGTH:]}"


def traces(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Return the traceback of a record's error and the stack of the call. If the record lacks one of them, it is
    omitted."""
    stack = cut(record.stack_info, 2 * MESSAGE_LENGTH) if record.stack_info else ""
    return [text for text in (trace(formatter, record), stack) if text]


def caller(record: logging.LogRecord) -> str:
    """Return the source location of a record, or "" if its scope does not log callers."""
    return str(getattr(record, "caller", ""))


def level_name(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname.lower())


def scope_name(record: logging.LogRecord) -> str:
    """Return the name of a record's scope, or "" for the default scope."""
    return record.name.removeprefix(ROOT).removeprefix(".")
