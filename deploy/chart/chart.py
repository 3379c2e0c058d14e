"""Reads Helm charts from folders. https://helm.sh/docs/topics/charts/"""

from __future__ import annotations

import pathlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from pilot.ingest.files.documents import SyntaxFault, read_documents

Plain = dict[str, Any]


class ChartError(Exception):
    """A chart cannot be read or rendered. The message contains the chart and the location."""


class Chart(NamedTuple):
    """A chart.

    `about` is the content of Chart.yaml, and `values` that of values.yaml. `templates` and `files` map paths in the
    folder to contents.
    """

    name: str
    about: Plain
    values: Plain
    templates: dict[str, str]
    files: dict[str, str]


def read_chart(folder: Traversable) -> Chart:
    """Read a chart from a folder. Raises ChartError if it does not exist or is invalid."""
    try:
        texts = {path: file.read_text("utf-8") for path, file in _walk(folder, "")}
    except (OSError, UnicodeError) as error:
        raise ChartError(f"cannot read the chart {folder}: {error}") from error
    if "Chart.yaml" not in texts:
        raise ChartError(f"{folder} is not a chart: Chart.yaml is missing")
    about, values = _mapping(texts, "Chart.yaml", folder), _mapping(texts, "values.yaml", folder)
    templates = {path: text for path, text in texts.items() if path.startswith("templates/")}
    files = {
        path: text
        for path, text in texts.items()
        if path not in templates and path not in ("Chart.yaml", "values.yaml")
    }
    return Chart(str(about.get("name") or folder.name), about, values, templates, files)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    entries: list[tuple[str, Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        path = f"{prefix}{entry.name}"
        entries += _walk(entry, f"{path}/") if entry.is_dir() else [(path, entry)]
    return entries


def _mapping(texts: dict[str, str], path: str, folder: Traversable) -> Plain:
    try:
        documents = read_documents(texts.get(path, "").encode(), path)
    except SyntaxFault as fault:
        raise ChartError(f"{folder}/{path}:{fault.line}: {fault}") from fault
    plain = documents[0].plain if documents else {}
    if not isinstance(plain, dict):
        raise ChartError(f"{folder}/{path}: expected a mapping")
    return plain


def installation_folder(path: str = "") -> Traversable:
    """Return the folder that contains `charts` and `profiles`. If the path is "", return the folder of this package."""
    return pathlib.Path(path) if path else resources.files("deploy")
