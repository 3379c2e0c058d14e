"""Overlays, which change single values in a component's objects. A path identifies each value."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import re2

from deploy.operator.components import EnabledComponent
from deploy.operator.settings_tree import PathError, Plain
from pilot.ingest.files.documents import SyntaxFault, read_documents
from pilot.lib.regex import find_fault

Warn = Callable[[str], None]


def apply_overlays(objects: list[Plain], enabled: EnabledComponent, warn: Warn) -> list[Plain]:
    """Return the objects with a component's overlays applied in order.

    `warn` is called for each patch that has no effect.
    """
    changed = list(objects)
    for position, overlay in enumerate(enabled.k8s.get("overlays") or ()):
        kind, name = overlay.get("kind"), overlay.get("name")
        places = [
            index for index, plain in enumerate(changed) if (plain["kind"], plain["metadata"]["name"]) == (kind, name)
        ]
        if not places:
            names = sorted(plain["metadata"]["name"] for plain in changed if plain["kind"] == kind)
            there = f"; it has {', '.join(names)}" if names else ""
            place = f"{enabled.path}.k8s.overlays[{position}].name"
            warn(f"{place}: component {enabled.component.name} has no {kind} {name}{there}")
        for index in places:
            changed[index] = _patch(changed[index], overlay.get("patches") or (), warn)
    return changed


def _patch(plain: Plain, patches: Any, warn: Warn) -> Plain:
    changed = copy.deepcopy(plain)
    for patch in patches:
        path = str(patch.get("path") or "")
        try:
            parts = overlay_path(path)
            _change(changed, parts, patch.get("value"))
        except PathError as error:
            warn(f"overlay of {plain['kind']} {plain['metadata']['name']}: {path}: {error}; the patch is ignored")
    return changed


def overlay_path(text: str) -> list[str]:
    """Split a path into keys and selectors in brackets. A backslash escapes a dot or colon."""
    parts: list[str] = []
    part, depth, chars = "", 0, iter(text)
    for char in chars:
        if char == "\\":
            following = next(chars, "")
            part += (
                following
                if following == "." and not depth
                else following
                if following in (".", ":", "]", "[")
                else f"\\{following}"
            )
        elif char == "." and not depth:
            parts, part = [*parts, part], ""
        else:
            if char == "[" and not depth and part:
                parts, part = [*parts, part], ""
            depth += (char == "[") - (char == "]")
            part += char
    if depth:
        raise PathError("a bracket is not closed")
    path = [p for p in [*parts, part] if p]
    if not path:
        raise PathError("the path is empty")
    return path


def _change(holder: Any, parts: list[str], value: Any) -> None:
    """Set the value at a path, or delete it if the value is None."""
    *way, last = parts
    for part, following in zip(way, parts[1:], strict=True):
        holder = _step(holder, part, following)
    if isinstance(holder, list):
        _change_item(holder, last, value)
    elif not isinstance(holder, dict):
        raise PathError(f"{last} is below a value that is not a mapping")
    elif last.startswith("["):
        raise PathError(f"{last} selects from a value that is not a list")
    elif value is None:
        if last not in holder:
            raise PathError(f"{last} to delete does not exist")
        del holder[last]
    else:
        holder[last] = _parse_value(value)


def _step(holder: Any, part: str, following: str) -> Any:
    """Return the value at one part of a path. A missing mapping is created."""
    if isinstance(holder, list):
        place = _index(holder, part)
        if place == len(holder):
            holder.append({})
        return holder[place]
    if not isinstance(holder, dict):
        raise PathError(f"{part} is below a value that is not a mapping")
    if part.startswith("["):
        raise PathError(f"{part} selects from a value that is not a list")
    if holder.get(part) is None:
        if following.startswith("[") and not re.fullmatch(r"\[-?\d+\]", following):
            raise PathError(f"list {part} does not exist")
        holder[part] = [] if following.startswith("[") else {}
    return holder[part]


def _change_item(items: list[Any], part: str, value: Any) -> None:
    place = _index(items, part)
    if value is None:
        if place == len(items):
            raise PathError(f"item {part} to delete does not exist")
        del items[place]
    elif place == len(items):
        items.append(_parse_value(value))
    else:
        items[place] = _parse_value(value)


def _index(items: list[Any], part: str) -> int:
    """Return the index of the item that a selector [N], [key:value] or [:value] matches.

    If an index N is out of range, the result is the length of the list.
    """
    if not (part.startswith("[") and part.endswith("]")):
        raise PathError(f"{part}: expected [index], [key:value] or [:value], because this is a list")
    inner = part[1:-1]
    if re.fullmatch(r"-?\d+", inner):
        return int(inner) if 0 <= int(inner) < len(items) else len(items)
    key, colon, expected = inner.partition(":")
    if not colon:
        raise PathError(f"{part}: expected [index], [key:value] or [:value]")
    for index, item in enumerate(items):
        if isinstance(item, dict) and key and key in item and _text(item[key]) == expected:
            return index
        if not isinstance(item, dict) and not key and _matches(expected, _text(item)):
            return index
    raise PathError(f"item {part} does not exist")


def _matches(expression: str, text: str) -> bool:
    if fault := find_fault(expression):
        raise PathError(f"[:{expression}] is not a valid regular expression: {fault}")
    return re2.search(expression, text) is not None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_value(value: Any) -> Any:
    """Return the mapping that a multi-line string contains. If there is none, return the value unchanged."""
    if isinstance(value, str) and "\n" in value.strip():
        try:
            documents = read_documents(value.encode(), "")
        except SyntaxFault:
            return value
        if len(documents) == 1 and isinstance(documents[0].plain, dict):
            return documents[0].plain
    return copy.deepcopy(value)
