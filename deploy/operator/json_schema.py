"""A JSON Schema for the IstioOperator and its values. Editors and other validators can use it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from deploy.operator.schema import TYPES
from webhook.pod.schema import SchemaField

Schema = dict[str, Any]
_SCALARS: dict[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "count": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+$"}]},
    "number": {"type": "number"},
    "tag": {"type": ["string", "number"]},
    "port": {"type": ["integer", "string"]},
    "quantity": {"type": ["string", "number"]},
    "map": {"type": "object"},
    "maps": {"type": "array", "items": {"type": "object"}},
    "any": {},
}


def json_schema() -> str:
    """Return the schema as a JSON string. Each type is defined once, in `$defs`."""
    used = definitions_of(["IstioOperator"])
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/IstioOperator",
        "$defs": dict(sorted(used.items())),
    }
    return json.dumps(schema, indent=1) + "\n"


def definitions_of(names: Iterable[str]) -> dict[str, Schema]:
    """Return the schemas of types and, recursively, of the types of their fields. They are keyed by name."""
    used: dict[str, Schema] = {}
    for name in names:
        _add(name, used)
    return used


def _add(name: str, used: dict[str, Schema]) -> None:
    """Add a type and, recursively, the types of its fields to `used`."""
    if name in used or name not in TYPES:
        return
    used[name] = {"type": ["object", "null"], "additionalProperties": False, "properties": {}}
    for field in TYPES[name].fields.values():
        _add(field.type, used)
        used[name]["properties"][field.name] = field_schema(field)


def field_schema(field: SchemaField) -> Schema:
    """Return the schema of a field. Null is equivalent to absence."""
    item = {"$ref": f"#/$defs/{field.type}"} if field.type in TYPES else _SCALARS[field.type]
    schema: Schema = {
        "[": {"type": "array", "items": item},
        "{": {"type": "object", "additionalProperties": item},
        "": item,
    }[field.shape]
    return schema if not schema or "$ref" in schema else {"anyOf": [schema, {"type": "null"}]}
