"""The pages of ControlZ as HTML."""

from __future__ import annotations

import html
import importlib.resources
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.lib.logging.log import LEVELS

_TEMPLATE = string.Template(
    importlib.resources.files("pilot.controlz").joinpath("page.html").read_text(encoding="utf-8")
)


class Topic(NamedTuple):
    """One page of the site. `render` returns its data as HTML. With `as_data`, the data is also served as JSON."""

    name: str
    title: str
    render: Callable[[Any], str]
    as_data: bool = True


def home_page(facts: Mapping[str, Any]) -> str:
    return _whole("ControlZ", _facts(facts))


def not_found_page() -> str:
    return _whole("Page not found", "<p>Choose a page in the menu above.</p>")


def _scope_page(scopes: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of log scopes with controls for their levels."""
    rows = (
        (_text(s["name"]), _text(s["description"]), _levels(s, "output_level"), _levels(s, "stack_trace_level"))
        for s in scopes
    )
    return _whole("Log scopes", _table(("scope", "description", "output level", "stack trace level"), rows))


def _levels(scope: Mapping[str, Any], field: str) -> str:
    options = "".join(f"<option{' selected' if level == scope[field] else ''}>{level}</option>" for level in LEVELS)
    name, label = html.escape(scope["name"]), field.replace("_", " ")
    return f'<select aria-label="{label} of {name}" data-scope="{name}" data-field="{field}">{options}</select>'


def _memory_page(statistics: Mapping[str, Any]) -> str:
    button = '<button data-method="PUT" data-path="/memj/forcecollection">Collect garbage now</button>'
    return _whole(
        "Memory", button + _facts({name: value for name, value in statistics.items() if not isinstance(value, list)})
    )


def _environment_page(variables: Iterable[Mapping[str, str]]) -> str:
    return _whole(
        "Environment", _table(("variable", "value"), ((_text(v["name"]), _text(v["value"])) for v in variables))
    )


def _process_page(facts: Mapping[str, Any]) -> str:
    return _whole("Process", _facts(facts))


def _argument_page(arguments: Sequence[str]) -> str:
    return _whole(
        "Arguments", _table(("number", "argument"), ((str(n), _text(argument)) for n, argument in enumerate(arguments)))
    )


def _version_page(build: Mapping[str, str]) -> str:
    return _whole("Version", _facts(build))


def _metric_page(families: Iterable[Mapping[str, Any]]) -> str:
    samples = (
        (_text(s["name"]), _text(", ".join(f"{k}={v}" for k, v in s["labels"].items())), s["value"])
        for f in families
        for s in f["metric"]
    )
    return _whole("Metrics", _table(("metric", "labels", "value"), samples))


def _signal_page(names: Iterable[str]) -> str:
    buttons = "".join(f'<button data-method="PUT" data-path="/signalj/{name}">Send {name}</button>' for name in names)
    return _whole("Signals", f"<p>SIGUSR1 logs the stacks of all threads and tasks.</p>{buttons}")


TOPICS = (
    Topic("scope", "Scopes", _scope_page),
    Topic("mem", "Memory", _memory_page),
    Topic("env", "Environment", _environment_page),
    Topic("proc", "Process", _process_page),
    Topic("arg", "Arguments", _argument_page, as_data=False),
    Topic("version", "Version", _version_page),
    Topic("metric", "Metrics", _metric_page),
    Topic("signal", "Signals", _signal_page, as_data=False),
)


def _whole(title: str, body: str) -> str:
    menu = "".join(f'<a href="/{topic.name}z/">{topic.title}</a>' for topic in TOPICS)
    return _TEMPLATE.substitute(title=html.escape(title), menu=menu, body=body)


def _facts(facts: Mapping[str, Any]) -> str:
    return _table(("name", "value"), ((_text(name), _text(value)) for name, value in facts.items()))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table. The cells are HTML, too."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{_cells(row)}</tr>' for row in rows)}</table>"


def _cells(row: Iterable[str]) -> str:
    return "".join(f"<td>{cell}</td>" for cell in row)


def _text(value: object) -> str:
    return html.escape(str(value).encode(errors="backslashreplace").decode())
