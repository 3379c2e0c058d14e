"""Logs in Istio's shape: time, level, scope and message between tabs, or a JSON object a line.

Scopes are loggers below "pilot"; the scope "default" is "pilot" itself and is not printed.
https://istio.io/latest/docs/ops/diagnostic-tools/component-logging/
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping

from pilot.lib.clock import rfc3339
from pilot.lib.log_repeats import Repeats
from pilot.lib.outlet import Outlet, open_target
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
"""Characters of one value in a message, and of a whole message: what clients and users write has no bound of its own."""


def scope(name: str) -> logging.Logger:
    """Returns the logger of a scope."""
    return logging.getLogger(ROOT if name == "default" else f"{ROOT}.{name}")


def configure(levels: str, as_json: bool, targets: Iterable[str]) -> None:
    """Sends all logs to stdout, stderr or files, at levels as "scope:level,…". ValueError where one of them makes no sense."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = (
        False  # what no line shows costs half of making it
    )
    logging._srcfile = None  # https://docs.python.org/3/howto/logging.html#optimization
    parsed = parse_levels(levels)
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
    """Has `on_drop` told how many lines are dropped from now on, because nobody reads a log; it is called from any thread."""
    for handler in scope("default").handlers:
        if isinstance(handler, Outlet):
            handler.on_drop = on_drop


def parse_levels(text: str) -> dict[str, int]:
    """Returns the levels of a text like "default:info,ads:debug" as numbers by scope; a level alone is that of "default"."""
    levels: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, colon, level = part.rpartition(":")
        if level not in LEVELS:
            raise ValueError(f"{level!r} is not a log level: use {', '.join(LEVELS)}")
        levels[name if colon else "default"] = LEVELS[level]
    return levels


class TabbedLine(logging.Formatter):
    """2026-01-02T03:04:05.000006Z	info	ads	message

    A message is one line, whatever is in it; the lines of a trace are indented, so that none of them can look like a message.
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
    """{"level":"info","time":"…","scope":"ads","msg":"…"}, then the fields of the line, each of its own type."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "level": level_name(record),
            "time": rfc3339(record.created),
            "scope": scope_name(record),
            "msg": message(record),
        }
        fields["caller"], fields["stack"] = caller(record), "\n".join(traces(self, record))
        said = {name: value for name, value in fields.items() if value}
        return json.dumps(
            said | {name: value for name, value in fields_of(record).items() if name not in said},
            separators=(",", ":"),
            default=str,
        )


def fields(**values: object) -> dict[str, object]:
    """Returns what a line has beside its message, as the `extra` of a call: pairs at its end, or keys of its JSON."""
    return {"fields": values}


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Returns the fields of a record, with long texts cut."""
    found: Mapping[str, object] = getattr(record, "fields", {})
    return {name: cut(value, ARGUMENT_LENGTH) if isinstance(value, str) else value for name, value in found.items()}


def message(record: logging.LogRecord) -> str:
    """Returns the text of a record, with every text in it cut, and cut as a whole."""
    text = str(record.msg)
    if isinstance(record.args, tuple) and record.args:
        text %= tuple(
            cut(argument, ARGUMENT_LENGTH) if isinstance(argument, str) else argument for argument in record.args
        )
    elif record.args:
        text %= record.args
    return cut(text, MESSAGE_LENGTH)


def trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Returns the trace of a record's error, cut; the error itself, which comes last, is not left out."""
    text = formatter.formatException(record.exc_info) if record.exc_info else ""
    return text if len(text) <= 2 * MESSAGE_LENGTH else f"{cut(text, MESSAGE_LENGTH)}\n{text[-MESSAGE_LENGTH:]}"


def traces(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Returns what is written below a message: the trace of its error, and the stack that its scope is to have."""
    stack = cut(record.stack_info, 2 * MESSAGE_LENGTH) if record.stack_info else ""
    return [text for text in (trace(formatter, record), stack) if text]


def caller(record: logging.LogRecord) -> str:
    """Returns the place in the code that a record comes from, where its scope is to say it; else ""."""
    return str(getattr(record, "caller", ""))


def level_name(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname.lower())


def scope_name(record: logging.LogRecord) -> str:
    """Returns the name of a record's scope; "" for the default scope."""
    return record.name.removeprefix(ROOT).removeprefix(".")
