"""Renders a chart with values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

from deploy.chart.chart import Chart, ChartError, Plain
from deploy.chart.helm_functions import FUNCTIONS
from deploy.chart.helm_objects import Files, capabilities, release
from gotemplate import Template, TemplateError
from gotemplate.function import takes
from pilot.ingest.files.documents import SyntaxFault, read_documents

RELEASE = "istio"


def render(
    chart: Chart, values: Plain, namespace: str, release_name: str = RELEASE, only: Collection[str] = ()
) -> list[Plain]:
    """Render a chart. Return its objects, ordered by the names of their templates.

    `only` restricts the result to some templates. Raises ChartError if a template fails.
    """
    data = {
        "Values": merge_values(chart.values, values),
        "Release": release(release_name, namespace),
        "Chart": {key[:1].upper() + key[1:]: value for key, value in chart.about.items()},
        "Files": Files(chart.files),
        "Capabilities": capabilities(),
    }
    if only:
        chart = chart._replace(
            templates={path: text for path, text in chart.templates.items() if path in only or path.endswith(".tpl")}
        )
    template = _compile(chart)
    objects: list[Plain] = []
    for path in sorted(chart.templates):
        if path.rpartition("/")[2].startswith("_") or path.endswith(".txt"):
            continue
        data["Template"] = {"Name": f"{chart.name}/{path}", "BasePath": f"{chart.name}/templates"}
        objects += _objects(_execute(template, path, data), f"{chart.name}/{path}")
    return objects


def _compile(chart: Chart) -> Template:
    """Return all templates of a chart as one set, so that they can call each other."""
    template: list[Template] = []
    functions = {**FUNCTIONS, "tpl": takes("string any", _expand(lambda: template[0]))}
    template.append(Template(chart.name, functions))
    try:
        for path, text in chart.templates.items():
            template[0].add(path, text)
    except TemplateError as error:
        raise ChartError(str(error)) from error
    return template[0]


def _expand(find: Callable[[], Template]) -> Callable[[str, Any], str]:
    """Return the function `tpl`, which executes a string as a template."""

    def expand(text: str, data: Any) -> str:
        try:
            find().add("tpl", text)
            return find().execute(data, "tpl")
        except TemplateError as error:
            raise ValueError(str(error)) from error

    return expand


def _execute(template: Template, path: str, data: Plain) -> str:
    try:
        return template.execute(data, path)
    except TemplateError as error:
        _, is_refusal, reason = str(error).rpartition("error calling fail: ")  # the chart itself names the mistake
        raise ChartError(f"{template.name}: {reason}" if is_refusal else str(error)) from error


def _objects(text: str, path: str) -> list[Plain]:
    try:
        documents = [document.plain for document in read_documents(text.encode(), "")]
    except SyntaxFault as fault:
        raise ChartError(f"{path}: the output of the template is not valid YAML, line {fault.line}: {fault}") from fault
    for plain in documents:
        if not isinstance(plain, dict) or not plain.get("kind"):
            raise ChartError(f"{path}: the output of the template is not an object")
    return documents


def merge_values(lower: Plain, upper: Plain) -> Plain:
    """Return values with others merged over them. As in Helm, maps are merged, lists are replaced, and null removes a
    key."""
    values = copy.deepcopy(lower)
    for key, value in upper.items():
        current = values.get(key)
        if value is None and key in values:
            del values[key]
        elif isinstance(current, dict) and isinstance(value, dict):
            values[key] = merge_values(current, value)
        else:
            values[key] = copy.deepcopy(value)
    return values
