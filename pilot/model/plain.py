"""Configuration structs as the JSON that their users wrote."""
from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.lib.duration import Duration


def plain(value: Any, whole: bool = False) -> Any:
    """Returns a struct as a dict by JSON names; durations as "1.5s"; sets sorted. What is at its default is left out, but where `whole`
    only what is empty."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: plain(getattr(value, field.name), whole) for field in fields if _said(value, field, whole)}
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item, whole) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item, whole) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item, whole) for item in value]
    return value


def _said(struct: msgspec.Struct, field: msgspec.structs.FieldInfo, whole: bool) -> bool:
    value = getattr(struct, field.name)
    if value is None or (isinstance(value, tuple | list | Mapping) and not value):
        return False
    if whole:
        return bool(value) or field.default is None  # an explicit false or 0 of an optional field says something
    return field.required or bool(value != field.default)
