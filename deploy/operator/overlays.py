"""Overlays: changes of single places of a component's objects, by paths."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

from deploy.operator.components import WantedComponent
from deploy.operator.tree import PathError, Plain
from pilot.ingest.documents import SyntaxFault, read_documents

Warn = Callable[[str], None]


def apply_overlays(objects: list[Plain], chosen: WantedComponent, warn: Warn) -> list[Plain]:
    """Returns the objects with the overlays of a component applied in their order. `warn` is told of each patch that changes nothing."""
    found = list(objects)
    for overlay in chosen.settings.get("overlays") or ():
        kind, name = overlay.get("kind"), overlay.get("name")
        places = [
            index for index, plain in enumerate(found) if (plain["kind"], plain["metadata"]["name"]) == (kind, name)
        ]
        if not places:
            warn(f"overlay of {kind} {name}: component {chosen.component.name} has no such object")
        for index in places:
            found[index] = _patched(found[index], overlay.get("patches") or (), warn)
    return found


def _patched(plain: Plain, patches: Any, warn: Warn) -> Plain:
    changed = copy.deepcopy(plain)
    for patch in patches:
        path = str(patch.get("path") or "")
        try:
            parts = overlay_path(path)
            _change(changed, parts, patch.get("value"))
        except PathError as error:
            warn(f"overlay of {plain['kind']} {plain['metadata']['name']}: {path}: {error}; it is left out")
    return changed


def overlay_path(text: str) -> list[str]:
    """Returns the parts of a path: keys, and selectors in their brackets. A dot or colon after a backslash is one of the name."""
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
    found = [p for p in [*parts, part] if p]
    if not found:
        raise PathError("the path is empty")
    return found


def _change(holder: Any, parts: list[str], value: Any) -> None:
    """Sets or, without a value, deletes what the parts of a path lead to."""
    *way, last = parts
    for part, following in zip(way, parts[1:], strict=True):
        holder = _step(holder, part, following)
    if isinstance(holder, list):
        _change_item(holder, last, value)
    elif not isinstance(holder, dict):
        raise PathError(f"{last} is below a value that is no mapping")
    elif last.startswith("["):
        raise PathError(f"{last} selects from what is no list")
    elif value is None:
        if last not in holder:
            raise PathError(f"there is no {last} to delete")
        del holder[last]
    else:
        holder[last] = _meant(value)


def _step(holder: Any, part: str, following: str) -> Any:
    """Returns what a part of a path leads to; a mapping that is missing on the way is made."""
    if isinstance(holder, list):
        place = _place(holder, part)
        if place == len(holder):
            holder.append({})
        return holder[place]
    if not isinstance(holder, dict):
        raise PathError(f"{part} is below a value that is no mapping")
    if part.startswith("["):
        raise PathError(f"{part} selects from what is no list")
    if holder.get(part) is None:
        if following.startswith("[") and not re.fullmatch(r"\[-?\d+\]", following):
            raise PathError(f"there is no list {part}")
        holder[part] = [] if following.startswith("[") else {}
    return holder[part]


def _change_item(items: list[Any], part: str, value: Any) -> None:
    place = _place(items, part)
    if value is None:
        if place == len(items):
            raise PathError(f"there is no item {part} to delete")
        del items[place]
    elif place == len(items):
        items.append(_meant(value))
    else:
        items[place] = _meant(value)


def _place(items: list[Any], part: str) -> int:
    """Returns the index of the item that a selector means: [N], [key:value] or [:value]; one behind the last for an index that there is not."""
    if not (part.startswith("[") and part.endswith("]")):
        raise PathError(f"{part}: expected [index], [key:value] or [:value], as this is a list")
    inner = part[1:-1]
    if re.fullmatch(r"-?\d+", inner):
        return int(inner) if 0 <= int(inner) < len(items) else len(items)
    key, colon, wanted = inner.partition(":")
    if not colon:
        raise PathError(f"{part}: expected [index], [key:value] or [:value]")
    for index, item in enumerate(items):
        if isinstance(item, dict) and key and key in item and _text(item[key]) == wanted:
            return index
        if not isinstance(item, dict) and not key and _matches(wanted, _text(item)):
            return index
    raise PathError(f"there is no item {part}")


def _matches(expression: str, text: str) -> bool:
    try:
        return re.search(expression, text) is not None
    except re.error as error:
        raise PathError(f"[:{expression}] is no regular expression: {error}") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meant(value: Any) -> Any:
    """Returns the mapping that a text of several lines is, if it is one; else the value itself."""
    if isinstance(value, str) and "\n" in value.strip():
        try:
            documents = read_documents(value.encode(), "")
        except SyntaxFault:
            return value
        if len(documents) == 1 and isinstance(documents[0].plain, dict):
            return documents[0].plain
    return copy.deepcopy(value)
