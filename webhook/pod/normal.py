"""Normalizes Pods as an API server does: quantities are canonical, and zero values that mean absence are removed."""

from __future__ import annotations

from typing import Any

from webhook.pod.quantity import canonical
from webhook.pod.schema import TYPES, SchemaField, Type

_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "bool": (bool,),
    "port": (str, int),
    "quantity": (str, int, float),
}
_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    type(None): "nothing",
}
_EXPECTED = {
    "string": "a string",
    "int": "an integer",
    "bool": "true or false",
    "port": "a string or an integer",
    "quantity": "a string or a number",
    "[": "a list",
}
_LARGEST_SHOWN = 10**18
"""Largest number that a message shows."""


class ShapeError(ValueError):
    """A field of a Pod has the wrong type. The message starts with the path of the field."""


def normalize(value: dict[str, Any], kind: Type, path: str = "") -> dict[str, Any]:
    """Return the data of a type in normal form. Zero values that mean absence become null. Unknown fields are
    unchanged.

    Raise ShapeError if a field has the wrong type.
    """
    result: dict[str, Any] = {}
    for name, item in value.items():
        field = kind.fields.get(name)
        if field is None or item is None or name.startswith("$"):
            result[name] = item
            continue
        normal = _field(item, field, f"{path}.{name}" if path else name)
        result[name] = None if field.zero_is_absent and not normal and not isinstance(normal, dict) else normal
    return result


def _field(item: Any, field: SchemaField, path: str) -> Any:
    if field.shape == "[":
        if not isinstance(item, list):
            raise _wrong(path, item, "[")
        return [_item(entry, field.type, f"{path}[{index}]") for index, entry in enumerate(item)]
    if field.shape == "{":
        if not isinstance(item, dict):
            raise _wrong(path, item, "{")
        return {
            key: None if entry is None else _one(entry, field.type, f"{path}[{key}]") for key, entry in item.items()
        }
    return _one(item, field.type, path)


def _item(item: Any, kind: str, path: str) -> Any:
    if item is None and kind != "any":
        raise _wrong(path, item, kind)
    return _one(item, kind, path)


def _one(item: Any, kind: str, path: str) -> Any:
    if kind == "any":
        return item
    if kind in TYPES:
        if item is None:
            return None
        if not isinstance(item, dict):
            raise _wrong(path, item, "{")
        return normalize(item, TYPES[kind], path)
    if not isinstance(item, _SCALARS[kind]) or (isinstance(item, bool) and kind != "bool"):
        raise _wrong(path, item, kind)
    return _amount(item, path) if kind == "quantity" else item


def _amount(item: Any, path: str) -> str:
    try:
        return canonical(str(item))
    except ValueError as error:
        raise ShapeError(f"{path}: {error}") from error


def _wrong(path: str, item: Any, expected: str) -> ShapeError:
    """Return the error for a value that is not of an expected shape or type. Types with fields are mappings."""
    name = _NAMES.get(type(item), type(item).__name__)
    if expected == "string" and isinstance(item, bool | int | float):
        text = "" if abs(item) > _LARGEST_SHOWN else repr(item).lower()
        name = f'{text}: quote it: "{text}"' if text else f"{name}: quote it"
    return ShapeError(f"{path}: expected {_EXPECTED.get(expected, 'a mapping')}, got {name}")


def without_nulls(value: Any) -> Any:
    """Return the data without null values at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
