"""JSON patches (RFC 6902) and merge patches (RFC 7396)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any


class PatchError(Exception):
    """A patch cannot be applied."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    target = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def json_patch(target: Any, operations: Iterable[dict[str, Any]]) -> Any:
    """Return the target with a JSON patch applied. Raise PatchError if a path does not exist or a test fails."""
    root = {"": target}
    for operation in operations:
        path = operation["path"]
        match operation["op"]:
            case "test":
                if _at(root, path) != operation.get("value"):
                    raise PatchError(f"testing value {path} failed")
            case "remove":
                _remove(root, path)
            case "add":
                _add(root, path, copy.deepcopy(operation.get("value")))
            case "replace":
                _at(root, path)
                _remove(root, path)
                _add(root, path, copy.deepcopy(operation.get("value")))
            case "copy":
                _add(root, path, copy.deepcopy(_at(root, operation["from"])))
            case "move":
                value = _at(root, operation["from"])
                _remove(root, operation["from"])
                _add(root, path, value)
            case other:
                raise PatchError(f"unexpected kind: {other}")
    return root[""]


def _parts(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]


def _at(root: Any, path: str) -> Any:
    return _walk(root, _parts(path), path)


def _walk(value: Any, parts: Iterable[str], path: str) -> Any:
    for part in parts:
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise PatchError(f"there is no {path}") from error
    return value


def _add(root: Any, path: str, value: Any) -> None:
    *parents, last = _parts(path)
    parent = _walk(root, parents, path)
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif last.isdecimal() and int(last) <= len(parent):
        parent.insert(int(last), value)
    else:
        raise PatchError(f"there is no {path}")


def _remove(root: Any, path: str) -> None:
    _at(root, path)
    *parents, last = _parts(path)
    parent = _walk(root, parents, path)
    del parent[int(last) if isinstance(parent, list) else last]
