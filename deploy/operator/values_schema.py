"""The values of a chart as a JSON Schema, by which Helm refuses what is wrong before it renders anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deploy.operator.json_schema import Schema, definitions_of, field_schema
from deploy.operator.schema import TYPES

LIFTED: Mapping[str, str] = {"istiod": "Pilot", "cni": "Cni"}
"""Charts whose values may stand at the top that an IstioOperator has under a name of their own, and the type of these."""
_ALONE = frozenset({"gateway"})
"""Charts that an IstioOperator has nothing to do with."""
_SAID_ELSEWHERE: Schema = {"chartDefaults": {"type": "object"}, "enabled": {}, "tags": {}}
"""What Helm, or the chart itself, adds to what users say."""


def values_schema(chart: str, values: Mapping[str, Any]) -> str:
    """Returns the schema of a chart's values as text. `values` is its values.yaml: what has no type of its own is of that of its default."""
    properties: Schema = {**_SAID_ELSEWHERE}
    used: set[str] = set()
    for name in () if chart in _ALONE else ("Values", LIFTED.get(chart, "")):
        for field in TYPES[name].fields.values() if name else ():
            used.add(field.type)
            one = field_schema(field)
            properties[field.name] = (
                {"anyOf": [properties[field.name], one]} if properties.get(field.name) not in (None, one) else one
            )
    for key, default in (values.get("chartDefaults") or values).items():
        properties.setdefault(key, _like(default))
    definitions = definitions_of(used)
    for shared in (
        "Global",
    ):  # what is below `global` is for all charts of an installation, and not all of them are ours
        if shared in definitions:
            definitions[shared] = {**definitions[shared], "additionalProperties": True}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items())),
        **({"definitions": dict(sorted(definitions.items()))} if definitions else {}),
    }
    return json.dumps(schema, indent=1).replace("#/$defs/", "#/definitions/") + "\n"


def _like(default: Any) -> Schema:
    """Returns the schema of values that are of the kind of a default; null takes a default away."""
    if isinstance(default, bool):
        return {"type": ["boolean", "null"]}
    if isinstance(default, int | float):
        return {"type": ["number", "null"]}
    if isinstance(default, str):
        return {"type": ["string", "number", "null"]}
    if isinstance(default, list | dict):
        return {"type": ["array" if isinstance(default, list) else "object", "null"]}
    return {}
