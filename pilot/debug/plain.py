"""Configuration structs as the JSON that their users wrote."""
from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.lib.duration import Duration


def plain(value: Any) -> Any:
    """A struct as a dict by JSON names without what is at its default; durations as "1.5s"; sets sorted."""
    if isinstance(value, msgspec.Struct):
        return {field.encode_name: plain(getattr(value, field.name)) for field in msgspec.structs.fields(value) if _said(value, field)}
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _said(struct: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    value = getattr(struct, field.name)
    if value is None or (isinstance(value, tuple | list | Mapping) and not value):
        return False
    return field.required or bool(value != field.default)
