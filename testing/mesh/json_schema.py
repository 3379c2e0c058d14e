"""Checks plain data against a JSON Schema, as far as ours go."""

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
_KNOWN = {
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


def wrong_paths(value: Any, schema: Schema) -> list[str]:
    """Return the paths of what a schema does not allow."""
    return list(_wrong(value, schema, schema, "$"))


def _wrong(value: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    assert schema.keys() <= _KNOWN, f"a word that this checker does not know: {schema.keys() - _KNOWN}"
    if "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        yield from _wrong(value, found, root, path)
    if "anyOf" in schema:
        tried = [list(_wrong(value, one, root, path)) for one in schema["anyOf"]]
        if all(tried):
            yield from max(tried, key=lambda paths: max(map(len, paths)))
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
            yield from _wrong(item, schema["items"], root, f"{path}[{index}]")
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
            if inner is False:
                yield f"{path}.{key}"
            elif isinstance(inner, dict):
                yield from _wrong(item, inner, root, f"{path}.{key}")
