"""Generates the schema of a CustomResourceDefinition from a struct.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import Any

import msgspec
from msgspec import inspect as mi

from deploy.crd.limits import LIMITS, Limits
from pilot.config.base import OneOf, json_name
from pilot.lib.duration import Duration

Schema = dict[str, Any]
ANY: Schema = {"x-kubernetes-preserve-unknown-fields": True}
OPEN: Schema = {"type": "object", **ANY}


def schema_of(struct: type[Any], without: Collection[str] = ()) -> Schema:
    """Return the schema of a struct without the fields whose JSON names are in `without`."""
    return _struct(mi.type_info(struct), without)


def _struct(kind: Any, without: Collection[str] = ()) -> Schema:
    limits = LIMITS.get(kind.cls, Limits())
    properties = {field.encode_name: _field(field, limits) for field in kind.fields if field.encode_name not in without}
    schema: Schema = {"type": "object", "properties": dict(sorted(properties.items())), **limits.schema}
    exclusive = _exclusive(kind.cls)
    return {**schema, "not": {"anyOf": exclusive}} if exclusive else schema


def _exclusive(struct: type[Any]) -> list[Schema]:
    """Return a schema for each pair of fields that exclude each other. It matches objects that have both fields."""
    groups = struct.groups if issubclass(struct, OneOf) else ()
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return [
        {"required": sorted(names.get(f, json_name(f)) for f in pair)}
        for group in groups
        for pair in combinations(group, 2)
    ]


def _field(field: Any, limits: Limits) -> Schema:
    return _merged(_type(field.type), limits.fields.get(field.encode_name, {}))


def _merged(schema: Schema, more: Schema) -> Schema:
    """Return a schema with additional constraints, which may also apply to its items."""
    inner: Schema = {
        word: _merged(schema[word], more[word]) for word in ("items", "additionalProperties") if word in more
    }
    return {**schema, **more, **inner}


def _type(kind: Any) -> Schema:
    """Return the schema of a type. A type that allows any value has an unrestricted schema."""
    match kind:
        case mi.UnionType():
            return _type(next(t for t in kind.types if not isinstance(t, mi.NoneType)))
        case mi.StructType():
            return _struct(kind)
        case mi.DictType():
            values = _type(kind.value_type)
            return OPEN if values == ANY else {"type": "object", "additionalProperties": values}
        case mi.VarTupleType() | mi.ListType():
            return {"type": "array", "items": _type(kind.item_type)}
        case mi.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case mi.CustomType() if kind.cls is Duration:
            return {"type": "string"}
        case mi.Metadata():
            return _type(kind.type)
    return _scalar(kind)


def _scalar(kind: Any) -> Schema:
    match kind:
        case mi.BoolType():
            return {"type": "boolean"}
        case mi.IntType():
            bounds = {"minimum": kind.ge, "maximum": kind.le}
            return {"type": "integer", **{word: value for word, value in bounds.items() if value is not None}}
        case mi.FloatType():
            return {"type": "number"}
        case mi.StrType():
            return {"type": "string"}
        case mi.BytesType():
            return {"type": "string", "format": "byte"}
    return ANY
