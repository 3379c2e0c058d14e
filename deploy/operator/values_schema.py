"""JSON Schemas of the charts' values. With them, Helm rejects invalid values before rendering."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deploy.operator.json_schema import Schema, definitions_of, field_schema
from deploy.operator.schema import TYPES

LIFTED: Mapping[str, str] = {"istiod": "Pilot", "cni": "Cni"}
"""Charts whose values may be at the top level or, as in an IstioOperator, under a key. Each has the type of these
values."""
_STANDALONE = frozenset({"gateway"})
"""Charts that are not part of an IstioOperator."""
_RESERVED: Schema = {"chartDefaults": {"type": "object"}, "enabled": {}, "tags": {}}
"""Keys that Helm or the chart adds."""


def values_schema(chart: str, values: Mapping[str, Any]) -> str:
    """Return the schema of a chart's values as a JSON string.

    Values without a declared type have the type of their default in `values`.
    """
    properties: Schema = {**_RESERVED}
    used: set[str] = set()
    for name in () if chart in _STANDALONE else ("Values", LIFTED.get(chart, "")):
        for field in TYPES[name].fields.values() if name else ():
            used.add(field.type)
            field_type, previous = field_schema(field), properties.get(field.name)
            properties[field.name] = field_type if previous in (None, field_type) else {"anyOf": [previous, field_type]}
    for key, default in (values.get("chartDefaults") or values).items():
        properties.setdefault(key, _like(default))
    definitions = definitions_of(used)
    if "Global" in definitions:  # `global` is shared by all charts of an installation, including those of others
        definitions["Global"] = {**definitions["Global"], "additionalProperties": True}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items())),
        **({"definitions": dict(sorted(definitions.items()))} if definitions else {}),
    }
    return json.dumps(schema, indent=1).replace("#/$defs/", "#/definitions/") + "\n"


def _like(default: Any) -> Schema:
    """Return the schema for values of the same type as a default. Null, which removes a default, is also valid."""
    if isinstance(default, bool):
        return {"type": ["boolean", "null"]}
    if isinstance(default, int | float):
        return {"type": ["number", "null"]}
    if isinstance(default, str):
        return {"type": ["string", "number", "null"]}
    if isinstance(default, list | dict):
        return {"type": ["array" if isinstance(default, list) else "object", "null"]}
    return {}
