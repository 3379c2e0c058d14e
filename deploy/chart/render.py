"""A chart and values → objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

from deploy.chart.chart import Chart, ChartError, Plain
from deploy.chart.functions import FUNCTIONS
from deploy.chart.objects import Files, capabilities, release
from pilot.ingest.documents import SyntaxFault, read_documents
from webhook.template import Template, TemplateError
from webhook.template.function import takes

RELEASE = "istio"


def render(
    chart: Chart, values: Plain, namespace: str, release_name: str = RELEASE, only: Collection[str] = ()
) -> list[Plain]:
    """Returns the objects of a chart, or of those of its templates that `only` names, in the order of the templates' names. ChartError where a
    template fails."""
    data = {
        "Values": merged(chart.values, values),
        "Release": release(release_name, namespace),
        "Chart": {key[:1].upper() + key[1:]: value for key, value in chart.about.items()},
        "Files": Files(chart.files),
        "Capabilities": capabilities(),
    }
    if only:
        chart = chart._replace(
            templates={path: text for path, text in chart.templates.items() if path in only or path.endswith(".tpl")}
        )
    template = _compiled(chart)
    found: list[Plain] = []
    for path in sorted(chart.templates):
        if path.rpartition("/")[2].startswith("_") or path.endswith(".txt"):
            continue
        data["Template"] = {"Name": f"{chart.name}/{path}", "BasePath": f"{chart.name}/templates"}
        found += _objects(_executed(template, path, data), f"{chart.name}/{path}")
    return found


def _compiled(chart: Chart) -> Template:
    """Returns the set of all templates of a chart, which may call each other."""
    made: list[Template] = []
    functions = {**FUNCTIONS, "tpl": takes("string any", _expand(lambda: made[0]))}
    made.append(Template(chart.name, functions))
    try:
        for path, text in chart.templates.items():
            made[0].add(path, text)
    except TemplateError as error:
        raise ChartError(str(error)) from error
    return made[0]


def _expand(find: Callable[[], Template]) -> Callable[[str, Any], str]:
    """Returns the function `tpl`, which executes a text as a template."""

    def expand(text: str, data: Any) -> str:
        try:
            find().add("tpl", text)
            return find().execute(data, "tpl")
        except TemplateError as error:
            raise ValueError(str(error)) from error

    return expand


def _executed(template: Template, path: str, data: Plain) -> str:
    try:
        return template.execute(data, path)
    except TemplateError as error:
        raise ChartError(str(error)) from error


def _objects(text: str, path: str) -> list[Plain]:
    try:
        documents = [document.plain for document in read_documents(text.encode(), "")]
    except SyntaxFault as fault:
        raise ChartError(f"{path}: what the template gives is no YAML, line {fault.line}: {fault}") from fault
    for plain in documents:
        if not isinstance(plain, dict) or not plain.get("kind"):
            raise ChartError(f"{path}: what the template gives is no object")
    return documents


def merged(lower: Plain, upper: Plain) -> Plain:
    """Returns values with others laid over them: maps by key, lists whole; null takes a key away, as in Helm."""
    found = copy.deepcopy(lower)
    for key, value in upper.items():
        mine = found.get(key)
        if value is None and key in found:
            del found[key]
        elif isinstance(mine, dict) and isinstance(value, dict):
            found[key] = merged(mine, value)
        else:
            found[key] = copy.deepcopy(value)
    return found
