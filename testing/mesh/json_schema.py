"""Validation of plain data against the subset of JSON Schema that the charts use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_SUPPORTED = {
    "$schema",
    "$ref",
    "$defs",
    "definitions",
    "type",
    "properties",
    "additionalProperties",
    "items",
    "anyOf",
    "pattern",
}


def invalid_paths(value: Any, schema: Schema) -> list[str]:
    """Return the paths that violate a schema."""
    return list(_violations(value, schema, schema, "$"))


def _violations(value: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    assert schema.keys() <= _SUPPORTED, f"unsupported keywords: {schema.keys() - _SUPPORTED}"
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from _violations(value, target, root, path)
    if "anyOf" in schema:
        alternatives = [list(_violations(value, option, root, path)) for option in schema["anyOf"]]
        if all(alternatives):
            yield from max(alternatives, key=lambda paths: max(map(len, paths)))
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(
            isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names
        ):
            yield path
            return
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield path
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _violations(item, schema["items"], root, f"{path}[{index}]")
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
            if inner is False:
                yield f"{path}.{key}"
            elif isinstance(inner, dict):
                yield from _violations(item, inner, root, f"{path}.{key}")
