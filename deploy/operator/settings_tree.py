"""Settings as trees of plain data. Values are accessed by path."""

from __future__ import annotations

import copy
import re
from typing import Any

Plain = dict[str, Any]
_INDEX = re.compile(r"\[(-?\d+)\]")
_INTEGER = re.compile(r"[-+]?\d+")
_REAL = re.compile(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?")
_KEYED = re.compile(r"\[([^:\]]+):(.*)\]", re.DOTALL)
_STRINGS = (
    "spec.revision",
    "spec.tag",
    "spec.compatibilityVersion",
    "spec.values.compatibilityVersion",
    "spec.values.global.tag",
    "spec.values.pilot.tag",
    "spec.values.cni.tag",
)


class PathError(ValueError):
    """A path is invalid or does not exist."""


def deep_merge(lower: Plain, upper: Plain) -> Plain:
    """Return settings with others merged over them. Mappings are merged by key. Any other value, even null, replaces.

    The arguments are not modified.
    """
    merged = dict(lower)
    for key, value in upper.items():
        current = merged.get(key)
        merged[key] = (
            deep_merge(current, value)
            if isinstance(current, dict) and isinstance(value, dict)
            else copy.deepcopy(value)
        )
    return merged


def value_at(tree: Any, path: str, default: Any = None) -> Any:
    """Return the value at a path of keys. If it does not exist or is null, return the default."""
    for key in path.split("."):
        if not isinstance(tree, dict) or tree.get(key) is None:
            return default
        tree = tree[key]
    return tree


def with_value(tree: Plain, path: tuple[str, ...], value: Any) -> Plain:
    """Return the tree with the value at a path of keys replaced."""
    first, *rest = path
    inner = tree.get(first)
    return {**tree, first: with_value(inner if isinstance(inner, dict) else {}, tuple(rest), value) if rest else value}


def split_path(text: str) -> list[str]:
    """Split a path into keys and indexes in brackets. A backslash escapes a dot."""
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


def assign(tree: Plain, assignment: str) -> None:
    """Apply an assignment such as `values.pilot.autoscaleMin=2`, relative to `spec`.

    Raises PathError if it is invalid.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise PathError(f'--set {assignment}: expected "path=value"')
    if path.strip().startswith("spec."):
        raise PathError(
            f"--set {assignment}: paths are relative to spec; use {assignment.strip().removeprefix('spec.')}"
        )
    whole = f"spec.{path.strip()}"
    strings = whole in _STRINGS or ".proxyMetadata." in whole
    value = text.replace("\\,", ",") if strings else _parse_scalar(text)
    try:
        _set(tree, split_path(whole), value)
    except PathError as error:
        raise PathError(f"--set {assignment}: {error}") from error


def _parse_scalar(text: str) -> Any:
    """Return the Boolean or number in the text. If it is neither, return the text."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text):
        return float(text)
    return text.replace("\\,", ",")


def _set(holder: Any, parts: list[str], value: Any) -> None:
    part, rest = parts[0], parts[1:]
    if isinstance(holder, list):
        index = _index(holder, part)
        if index == len(holder):
            holder.append({} if rest else value)
        elif not rest:
            holder[index] = value
        if rest:
            _set(holder[index], rest, value)
        return
    if not isinstance(holder, dict):
        raise PathError(f"{part} is below a value that is not a mapping")
    if not rest:
        holder[part] = value
        return
    if not isinstance(holder.get(part), dict | list):
        holder[part] = [] if rest[0].startswith("[") else {}
    _set(holder[part], rest, value)


def _index(items: list[Any], part: str) -> int:
    """Return the index of the item that a part in brackets selects.

    For the index -1, the result is the length of the list, which is the index of a new item.
    """
    if match := _INDEX.fullmatch(part):
        index = int(match[1])
        if not -1 <= index <= len(items):
            raise PathError(
                f"{part} is not an item: the list has {len(items)} here, so use [{len(items)}] for a new one"
            )
        return index if index >= 0 else len(items)
    if match := _KEYED.fullmatch(part):
        for index, item in enumerate(items):
            if isinstance(item, dict) and str(item.get(match[1])) == match[2]:
                return index
        raise PathError(f"item {part} does not exist")
    raise PathError(f"{part}: expected an index such as [0] or [name:x]")
