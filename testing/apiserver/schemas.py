"""Schemas of CustomResourceDefinitions: invalid objects are rejected with the paths of the errors, unknown fields
pruned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from testing.apiserver.request_info import RequestInfo
from testing.apiserver.status_error import StatusError
from testing.apiserver.store import Plain

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_OPEN = "x-kubernetes-preserve-unknown-fields"


async def enforce(info: RequestInfo, old: Plain | None, new: Plain | None) -> Plain | None:
    """Return the object with defaults and without unknown fields.

    Raise StatusError with 422 if the object is invalid, and with 400 if it has unknown fields and validation is strict.
    """
    schema = info.resource.schemas.get(info.version)
    if new is None or not schema:
        return new
    unknown: list[str] = []
    rest = {key: value for key, value in new.items() if key not in ("apiVersion", "kind", "metadata")}
    inner = {
        **schema,
        "properties": {k: v for k, v in schema.get("properties", {}).items() if k in rest or "default" in v},
    }
    pruned = _prune(rest, inner, "", unknown)
    if unknown and info.query.get("fieldValidation") == "Strict":
        description = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise StatusError(
            400,
            f"{info.resource.kind} in version {info.version!r} cannot be handled: strict decoding error: {description}",
        )
    violations = list(
        _check(
            pruned,
            {
                **schema,
                "required": [n for n in schema.get("required", ()) if n not in ("apiVersion", "kind", "metadata")],
            },
            "",
        )
    )
    if violations:
        causes = [{"reason": "FieldValueInvalid", "message": message, "field": path} for path, message in violations]
        description = ", ".join(f"{path}: {message}" for path, message in violations)
        raise StatusError(
            422,
            f'{info.resource.kind}.{info.resource.group} "{info.name}" is invalid: {description}',
            details={"causes": causes},
        )
    return {"apiVersion": new["apiVersion"], "kind": new["kind"], "metadata": new["metadata"], **pruned}


def schema_violations(plain: Plain, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path and the message of each violation of a schema."""
    return _check(
        {key: value for key, value in plain.items() if key not in ("apiVersion", "kind", "metadata")}, schema, ""
    )


def _prune(value: Any, schema: Mapping[str, Any], path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        out: dict[str, Any] = {
            name: inner["default"] for name, inner in properties.items() if "default" in inner and name not in value
        }
        for name, item in value.items():
            field_path = f"{path}.{name}".lstrip(".")
            if name in properties:
                out[name] = _prune(item, properties[name], field_path, unknown)
            elif more or schema.get(_OPEN):
                out[name] = _prune(item, more, field_path, unknown) if isinstance(more, dict) else item
            else:
                unknown.append(field_path)
        return out
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_prune(item, schema["items"], f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _check(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if value is None and schema.get("nullable"):
        return
    kind = str(schema.get("type"))
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield path, f"Invalid value: {value!r}: must be of type integer or string"
    elif kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield path, f"Invalid value: {value!r}: must be of type {kind}"
        return
    yield from _check_scalar(value, schema, path)
    if isinstance(value, dict):
        yield from _check_object(value, schema, path)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield path, f"Invalid value: {len(value)}: has too few or too many items"
        for index, item in enumerate(value):
            yield from _check(item, schema.get("items", {}), f"{path}[{index}]")
    yield from _check_choices(value, schema, path)
    if "x-kubernetes-validations" in schema and value is not None:
        from testing.apiserver.rules import rule_violations  # CEL is optional, and few schemas have rules

        yield from ((path, f"Invalid value: {message}") for message in rule_violations(value, schema))


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}".lstrip("."), "Required value"
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        yield path, "Invalid value: has too few or too many properties"
    more = schema.get("additionalProperties")
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name, more if isinstance(more, dict) else {})
        yield from _check(item, inner, f"{path}.{name}".lstrip("."))


def _check_scalar(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if "enum" in schema and value not in schema["enum"]:
        yield path, f"Unsupported value: {value!r}: supported values: {', '.join(map(repr, schema['enum']))}"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield path, f"Invalid value: {value!r}: is too short or too long"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield path, f"Invalid value: {value!r}: should match '{schema['pattern']}'"
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and not schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        yield path, f"Invalid value: {value!r}: is too small or too large"


def _check_choices(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    fitting = [
        sum(not any(_check(value, part, path)) for part in schema[word]) for word in ("oneOf",) if word in schema
    ]
    if fitting and fitting[0] != 1:
        yield path, "Invalid value: must validate one and only one schema (oneOf)"
    if "anyOf" in schema and all(any(_check(value, part, path)) for part in schema["anyOf"]):
        yield path, "Invalid value: must validate at least one schema (anyOf)"
    for part in schema.get("allOf", ()):
        yield from _check(value, part, path)
    if "not" in schema and not any(_check(value, schema["not"], path)):
        yield path, "Invalid value: must not validate the schema (not)"
