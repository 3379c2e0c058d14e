"""A chart as its folder has it. https://helm.sh/docs/topics/charts/"""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from pilot.ingest.documents import SyntaxFault, read_documents

Plain = dict[str, Any]


class ChartError(Exception):
    """A chart cannot be read or rendered. The text says which one and where."""


class Chart(NamedTuple):
    """`about` is its Chart.yaml, `values` its values.yaml; `templates` and `files` are texts by their paths in the folder."""

    name: str
    about: Plain
    values: Plain
    templates: dict[str, str]
    files: dict[str, str]


def read_chart(folder: Traversable) -> Chart:
    """Returns the chart of a folder. ChartError where there is none, or where it is wrong."""
    try:
        texts = {path: file.read_text("utf-8") for path, file in _walk(folder, "")}
    except (OSError, UnicodeError) as error:
        raise ChartError(f"cannot read the chart {folder}: {error}") from error
    if "Chart.yaml" not in texts:
        raise ChartError(f"{folder} is no chart: it has no Chart.yaml")
    about, values = _mapping(texts, "Chart.yaml", folder), _mapping(texts, "values.yaml", folder)
    templates = {path: text for path, text in texts.items() if path.startswith("templates/")}
    files = {
        path: text
        for path, text in texts.items()
        if path not in templates and path not in ("Chart.yaml", "values.yaml")
    }
    return Chart(str(about.get("name") or folder.name), about, values, templates, files)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        path = f"{prefix}{entry.name}"
        found += _walk(entry, f"{path}/") if entry.is_dir() else [(path, entry)]
    return found


def _mapping(texts: dict[str, str], path: str, folder: Traversable) -> Plain:
    try:
        documents = read_documents(texts.get(path, "").encode(), path)
    except SyntaxFault as fault:
        raise ChartError(f"{folder}/{path}:{fault.line}: {fault}") from fault
    plain = documents[0].plain if documents else {}
    if not isinstance(plain, dict):
        raise ChartError(f"{folder}/{path}: expected a mapping")
    return plain
