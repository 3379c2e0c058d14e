"""Mesh configuration messages as templates see them: with Go field names, and with getters that accept nil."""

from __future__ import annotations

import functools
from typing import Any

from msgspec import inspect as mi

from gotemplate.values import Enum, GoStruct, Int64, NilPointer, StringList, StringMap
from pilot.lib.duration import Duration, format_duration
from webhook.inject.protobuf_json import plain_message, zero_of_enum


class _Shape(dict[str, tuple[str, mi.Type, bool]]):
    """Mapping from the Go name of each field of a message to the field's attribute, its type, and whether it is an
    enum."""


@functools.cache
def _shape(kind: type) -> _Shape:
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    return _Shape({_go_name(field.name): (field.name, field.type, _is_enum(field.type)) for field in info.fields})


def _go_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


class TemplateMessage(GoStruct):
    """A protobuf message. It can be nil, and its getters then return zero values."""

    def __init__(self, message: Any, kind: type) -> None:
        self.message, self._kind = message, kind
        self.type_name = f"*v1alpha1.{kind.__name__}"

    def member(self, name: str) -> Any:
        """Return the value of a field or the result of a getter. Raise ActionError if there is no field or getter with
        this name."""
        getter = name.startswith("Get")
        entry = _shape(self._kind).get(name.removeprefix("Get") if getter else name)
        if entry is None:
            if name == "String":
                return str(self.message)
            raise self.no_member(name)
        attribute, kind, is_enum = entry
        if self.message is None and not getter:
            raise NilPointer(self.type_name).no_member(name)
        value = getattr(self.message, attribute) if self.message is not None else None
        return self._enum(attribute, value) if is_enum else _shown(value, kind)

    def _enum(self, attribute: str, value: str | None) -> Enum:
        zero = zero_of_enum(self._kind, attribute)
        return Enum.of(value or zero, value in (None, zero), "v1alpha1.Enum")

    def plain(self) -> Any:
        """Return the message as protobuf JSON."""
        return plain_message(self.message) if self.message is not None else None

    @property
    def empty(self) -> bool:
        """Return whether the message is nil."""
        return self.message is None


class Wrapped(GoStruct):
    """A protobuf wrapper such as BoolValue. It has the field Value and the getter GetValue, whose default is the zero
    value."""

    type_name = "*wrapperspb.Value"

    def __init__(self, value: Any, zero: Any) -> None:
        self._value, self._zero = value, zero

    def member(self, name: str) -> Any:
        """Return the value of the field or the result of the getter. Raise ActionError if the name is neither of the
        two, or if the field of a nil wrapper is read."""
        if name == "GetValue":
            return self._zero if self._value is None else self._value
        if name == "Value" and self._value is not None:
            return self._value
        raise self.no_member(name)

    def plain(self) -> Any:
        """Return the wrapped value."""
        return self._value


class Span(GoStruct):
    """A protobuf Duration."""

    type_name = "*durationpb.Duration"

    def __init__(self, duration: Duration) -> None:
        self.duration = duration

    def member(self, name: str) -> Any:
        """Return the seconds, the nanoseconds, or the duration in Go's format."""
        values: dict[str, Any] = {
            "Seconds": Int64(self.duration // 10**9),
            "Nanos": self.duration % 10**9,
            "AsDuration": format_duration(self.duration),
        }
        key = name.removeprefix("Get")
        if key not in values:
            raise self.no_member(name)
        return values[key]

    def plain(self) -> str:
        """Return the duration as protobuf JSON."""
        return str(self.duration)

    def printed(self, verb: str) -> str:
        """Return the duration in protobuf's text format."""
        return f"seconds:{self.duration // 10**9}" + (
            f" nanos:{self.duration % 10**9}" if self.duration % 10**9 else ""
        )


def _is_enum(kind: mi.Type) -> bool:
    kinds = kind.types if isinstance(kind, mi.UnionType) else (kind,)
    return any(isinstance(k, mi.LiteralType) for k in kinds)


def _shown(value: Any, kind: mi.Type) -> Any:
    if isinstance(kind, mi.UnionType):
        kinds = [k for k in kind.types if not isinstance(k, mi.NoneType)]
        if len(kinds) == 1 and len(kind.types) == 2:
            return _optional(value, kinds[0])
    if isinstance(kind, mi.StructType):
        return TemplateMessage(value, kind.cls)
    if value is None:
        return _zero(kind)
    if isinstance(value, Duration):
        return Span(value)
    if isinstance(value, tuple):
        return _list(value, kind)
    if isinstance(value, dict):
        return StringMap(value) if all(isinstance(v, str) for v in value.values()) else dict(value)
    return value


def _zero(kind: mi.Type) -> Any:
    """Return the value that a getter of a nil message returns for a field."""
    match kind:
        case mi.StrType():
            return ""
        case mi.BoolType():
            return False
        case mi.IntType() | mi.FloatType():
            return 0
        case mi.VarTupleType():
            return []
        case mi.DictType():
            return StringMap()
    return NilPointer("*v1alpha1.Message")


def _optional(value: Any, kind: mi.Type) -> Any:
    if isinstance(kind, mi.StructType):
        return TemplateMessage(value, kind.cls) if value is not None else _NilMessage(None, kind.cls)
    if isinstance(kind, mi.BoolType | mi.IntType | mi.FloatType):
        zero: Any = False if isinstance(kind, mi.BoolType) else 0
        return Wrapped(value, zero) if value is not None else _absent(zero)
    if isinstance(kind, mi.CustomType) and value is None:
        return NilPointer("*durationpb.Duration")
    return _shown(value, kind) if value is not None or not isinstance(kind, mi.StrType) else ""


class _NilMessage(NilPointer):
    """A nil message whose getters return nil messages and zero values."""

    def __init__(self, message: None, kind: type) -> None:
        super().__init__(f"*v1alpha1.{kind.__name__}")
        self._inner = TemplateMessage(message, kind)

    def member(self, name: str) -> Any:
        if name.startswith("Get"):
            return self._inner.member(name)
        return super().member(name)


def _absent(zero: Any) -> NilPointer:
    return NilPointer("*wrapperspb.Value", {"GetValue": zero})


def _list(value: tuple[Any, ...], kind: mi.Type) -> list[Any]:
    item = kind.item_type if isinstance(kind, mi.VarTupleType) else None
    if isinstance(item, mi.StructType):
        return [TemplateMessage(entry, item.cls) for entry in value]
    return StringList(value) if all(isinstance(v, str) for v in value) else list(value)
