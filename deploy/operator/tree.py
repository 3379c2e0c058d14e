"""Settings as trees of plain data: laid over each other, read and set by paths."""

from __future__ import annotations

import copy
import re
from typing import Any

Plain = dict[str, Any]
_INDEX = re.compile(r"\[(-?\d+)\]")
_KEYED = re.compile(r"\[([^:\]]+):(.*)\]", re.DOTALL)
_STRINGS = (
    "spec.tag",
    "spec.compatibilityVersion",
    "spec.values.compatibilityVersion",
    "spec.values.global.tag",
    "spec.values.pilot.tag",
    "spec.values.cni.tag",
)


class PathError(ValueError):
    """A path leads nowhere."""


def lay_over(lower: Plain, upper: Plain) -> Plain:
    """Returns settings with others over them: maps by key, everything else whole, null too. Neither is changed."""
    found = dict(lower)
    for key, value in upper.items():
        mine = found.get(key)
        found[key] = (
            lay_over(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else copy.deepcopy(value)
        )
    return found


def at(found: Any, path: str, default: Any = None) -> Any:
    """Returns what a path of keys leads to, the default where it leads nowhere or to null."""
    for key in path.split("."):
        if not isinstance(found, dict) or found.get(key) is None:
            return default
        found = found[key]
    return found


def put(tree: Plain, path: tuple[str, ...], value: Any) -> Plain:
    """Returns the tree with a value at a path of keys."""
    first, *rest = path
    inner = tree.get(first)
    return {**tree, first: put(inner if isinstance(inner, dict) else {}, tuple(rest), value) if rest else value}


def split_path(text: str) -> list[str]:
    """Returns the parts of a path: keys between dots, and what stands in brackets with them. A dot after a backslash is one of a key."""
    parts: list[str] = []
    part, depth, escaped = "", 0, False
    for char in text:
        if escaped:
            part, escaped = part + (char if char == "." else "\\" + char), False
        elif char == "\\":
            escaped = True
        elif char == "." and not depth:
            parts, part = [*parts, part], ""
        else:
            if char == "[" and not depth and part:
                parts, part = [*parts, part], ""
            depth += (char == "[") - (char == "]")
            part += char
    return [part for part in [*parts, part] if part]


def set_text(tree: Plain, assignment: str) -> None:
    """Sets what a text like `values.pilot.autoscaleMin=2` says, below `spec` of the tree. PathError where it cannot be."""
    path, equals, text = assignment.partition("=")
    if not equals:
        raise PathError(f'--set {assignment}: expected "path=value"')
    whole = f"spec.{path.strip()}"
    strings = whole in _STRINGS or ".proxyMetadata." in whole
    value = text.replace("\\,", ",") if strings else _typed(text)
    try:
        _set(tree, split_path(whole), value)
    except PathError as error:
        raise PathError(f"--set {assignment}: {error}") from error


def _typed(text: str) -> Any:
    """Returns the boolean or the number that a text is, else the text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        if re.fullmatch(r"[-+]?\d+" if kind is int else r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?", text):
            return kind(text)
    return text.replace("\\,", ",")


def _set(holder: Any, parts: list[str], value: Any) -> None:
    part, rest = parts[0], parts[1:]
    if isinstance(holder, list):
        index = _place(holder, part)
        if index == len(holder):
            holder.append({} if rest else value)
        elif not rest:
            holder[index] = value
        if rest:
            _set(holder[index], rest, value)
        return
    if not isinstance(holder, dict):
        raise PathError(f"{part} is below a value that is no mapping")
    if not rest:
        holder[part] = value
        return
    if not isinstance(holder.get(part), dict | list):
        holder[part] = [] if rest[0].startswith("[") else {}
    _set(holder[part], rest, value)


def _place(items: list[Any], part: str) -> int:
    """Returns the index of an item that a part in brackets names; one behind the last for an index that there is not."""
    if found := _INDEX.fullmatch(part):
        index = int(found[1])
        return index if 0 <= index < len(items) else len(items)
    if found := _KEYED.fullmatch(part):
        for index, item in enumerate(items):
            if isinstance(item, dict) and str(item.get(found[1])) == found[2]:
                return index
        raise PathError(f"there is no item {part}")
    raise PathError(f"{part} is in the place of an index like [0] or [name:x]")
