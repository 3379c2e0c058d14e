"""Compares a running Pod with the same Pod as injected by this control plane.

The API server adds defaults, so only fields that this control plane sets are compared, and the items of lists.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

Plain = dict[str, Any]
STATUS = "sidecar.istio.io/status"
"""Annotation of injected Pods, with a list of what was injected."""
_ADDED = "kube-api-access-"
"""Prefix of the volumes that the API server adds to Pods."""


def pod_differences(injected: Plain, pod: Plain) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of each field that differs."""
    for name in ("labels", "annotations"):
        ours = {key: value for key, value in (injected["metadata"].get(name) or {}).items() if key != STATUS}
        yield from _compare(ours, pod["metadata"].get(name) or {}, f"metadata.{name}")
    yield from _compare(injected["spec"], pod["spec"], "spec")


def _compare(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of a field that this control plane sets."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            yield from _compare(value, theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and all(map(_is_named, ours + theirs)):
        rows, others = {_name(row): row for row in ours}, {_name(row): row for row in theirs}
        for name in rows:
            yield from _compare(rows[name], others.get(name), f"{path}[{name}]")
        surplus = [name for name in others if name not in rows and not name.startswith(_ADDED)]
        yield from ((f"{path}[{name}]", others[name], None) for name in surplus)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for position, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _compare(*pair, f"{path}[{position}]")
    elif _content(ours) != _content(theirs) and not (ours in ({}, [], None, "", 0, False) and theirs is None):
        yield path, theirs, ours


def _content(value: Any) -> Any:
    """Return the content of a value. White space in JSON, as in the variable with the ports, has no meaning."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


def _is_named(row: Any) -> bool:
    return isinstance(row, dict) and "name" in row


def _name(row: Plain) -> str:
    """Return the name of an item. Volume mounts of one volume differ in their paths."""
    return f"{row['name']} {row['mountPath']}" if "mountPath" in row else str(row["name"])
