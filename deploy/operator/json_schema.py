"""The fields of an IstioOperator, its values included, as a JSON Schema: for editors, and for those who check their files elsewhere."""

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
    """Returns the schema as text; each type stands once, under `$defs`."""
    used = definitions_of(["IstioOperator"])
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/IstioOperator",
        "$defs": dict(sorted(used.items())),
    }
    return json.dumps(schema, indent=1) + "\n"


def definitions_of(names: Iterable[str]) -> dict[str, Schema]:
    """Returns the schemas of types, and of those of their fields, by name."""
    used: dict[str, Schema] = {}
    for name in names:
        _add(name, used)
    return used


def _add(name: str, used: dict[str, Schema]) -> None:
    """Adds a type, and those of its fields."""
    if name in used or name not in TYPES:
        return
    used[name] = {"type": ["object", "null"], "additionalProperties": False, "properties": {}}
    for field in TYPES[name].fields.values():
        _add(field.type, used)
        used[name]["properties"][field.name] = field_schema(field)


def field_schema(field: SchemaField) -> Schema:
    """Returns the schema of a field; null is nothing."""
    one = {"$ref": f"#/$defs/{field.type}"} if field.type in TYPES else _SCALARS[field.type]
    whole: Schema = {
        "[": {"type": "array", "items": one},
        "{": {"type": "object", "additionalProperties": one},
        "": one,
    }[field.shape]
    return whole if not whole or "$ref" in whole else {"anyOf": [whole, {"type": "null"}]}
