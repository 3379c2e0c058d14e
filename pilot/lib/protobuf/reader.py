"""Decoder for protobuf's JSON format. It reports many errors and their places, not only the first error.

It decodes in steps, between which it may be interrupted, because a message may have thousands of values.

https://protobuf.dev/programming-guides/json/
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

from pilot.lib.protobuf import json_value
from pilot.lib.protobuf.fault import Place, Violation
from pilot.lib.protobuf.types import find_type, name_in, similar_type
from pilot.lib.suggestion import did_you_mean

MAX_DEPTH = 60
"""Maximum nesting depth of messages. Decoders of the wire format reject messages that are nested more deeply."""
MAX_WIRE_DEPTH = 90
"""Maximum nesting depth including the messages inside JSON values. Decoders of the wire format support a depth of 100.

A few levels remain for the messages that contain the decoded message.
"""
MAX_FAULTS = 100
"""Number of errors after which decoding ends. A value may contain an error in each of its thousands of fields."""
AT_ONCE = 64
"""Maximum number of items of a list or map to decode at once."""
LONGEST_TEXT = 4096
"""Maximum number of characters of a value such as a FieldMask, whose conversion takes time for each character."""
_MAX_SUGGESTIONS = 10
"""Number of errors after which no names are suggested for unknown fields."""
TYPE = "@type"
_ANY = "google.protobuf.Any"
_BY_VALUE = frozenset(
    f"google.protobuf.{name}"
    for name in (
        "BoolValue",
        "BytesValue",
        "DoubleValue",
        "Duration",
        "FieldMask",
        "FloatValue",
        "Int32Value",
        "Int64Value",
        "ListValue",
        "StringValue",
        "Struct",
        "Timestamp",
        "UInt32Value",
        "UInt64Value",
        "Value",
    )
)
"""Message types that have a special JSON representation."""
_CONVERTED = frozenset(f"google.protobuf.{name}" for name in ("Duration", "FieldMask", "Timestamp"))
"""Message types whose JSON representation is a text that is converted character by character."""
_TYPED_STRUCTS = frozenset(("udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"))


Steps = Generator[None, None, None]
"""The steps of a computation that may be interrupted between them."""


def read_message(kind: type[Any], plain: Any) -> tuple[Any, list[Violation]]:
    """Decode a message from plain JSON values. Return the message without its invalid parts, and the errors.

    After `MAX_FAULTS` errors, the rest of the message is not decoded.
    """
    decoded, reading = kind(), _Reading()
    with contextlib.suppress(_TooManyFaults):
        for _ in reading.read(decoded, plain, ()):
            pass
    return decoded, reading.faults


def read_message_in_steps(
    kind: type[Any], plain: Any, suggests: bool = True
) -> Generator[None, None, tuple[Any, list[Violation]]]:
    """Decode a message as `read_message` does, in steps. `suggests` is whether to suggest a known type."""
    decoded, reading = kind(), _Reading(suggests)
    with contextlib.suppress(_TooManyFaults):
        yield from reading.read(decoded, plain, ())
    return decoded, reading.faults


class _TooManyFaults(Exception):
    """Decoding ends because it has found `MAX_FAULTS` errors."""


class _Reading:
    """Decodes one message and collects its errors."""

    def __init__(self, suggests: bool = True) -> None:
        self.faults: list[Violation] = []
        self._suggests = suggests

    def read(self, into: Any, plain: Any, place: Place) -> Steps:
        if not isinstance(plain, Mapping):
            self._wrong(place, f"expected a mapping for {into.DESCRIPTOR.name}, got {_kind_of(plain)}")
            return
        if len(place) > MAX_DEPTH:
            self._fault(Violation("too-deep", place, f"messages are nested more than {MAX_DEPTH} deep"))
            return
        key_of_slot: dict[str, str] = {}
        for key, value in plain.items():
            field = _field(into.DESCRIPTOR, key)
            if field is None:
                self._fault(_unknown_field(into.DESCRIPTOR, (*place, str(key)), len(self.faults) < _MAX_SUGGESTIONS))
            elif value is not None or _takes_null(field):
                other = key_of_slot.setdefault(_slot(field), str(key))
                if other != key:
                    self._fault(
                        Violation("exclusive-fields", (*place, str(key)), f"only one of {other} and {key} may be set")
                    )
                else:
                    yield from self._set(into, field, value, (*place, str(key)))
            yield

    def _set(self, into: Any, field: FieldDescriptor, value: Any, place: Place) -> Steps:
        if _is_map(field):
            yield from self._set_map(into, field, value, place)
        elif field.is_repeated:
            yield from self._set_list(into, field, value, place)
        elif not _is_open(field):
            yield from self._set_value(into, field, value, place)
        else:
            part = getattr(into, field.name)
            part.SetInParent()
            yield from self._read_part(part, value, place)

    def _read_part(self, part: Any, value: Any, place: Place) -> Steps:
        if part.DESCRIPTOR.full_name == _ANY:
            yield from self._read_any(part, value, place)
            return
        yield from self.read(part, value, place)
        if part.DESCRIPTOR.full_name in _TYPED_STRUCTS:
            yield from self._check_struct(part, value, place)

    def _set_list(self, into: Any, field: FieldDescriptor, value: Any, place: Place) -> Steps:
        if not isinstance(value, list | tuple):
            self._wrong(place, f"expected a list, got {_kind_of(value)}")
        elif _is_open(field):
            for index, item in enumerate(value):
                yield from self._read_part(getattr(into, field.name).add(), item, (*place, index))
        else:
            yield from self._set_items(into, field, list(enumerate(value)), place)

    def _set_map(self, into: Any, field: FieldDescriptor, value: Any, place: Place) -> Steps:
        if not isinstance(value, Mapping):
            self._wrong(place, f"expected a mapping, got {_kind_of(value)}")
            return
        assert field.message_type is not None
        if not _is_open(field.message_type.fields_by_name["value"]):
            yield from self._set_items(into, field, list(value.items()), place)
            return
        for key, item in value.items():
            at = (*place, str(key))
            if self._can_set(type(into), field, {key: {}}, at):
                part = next(iter(getattr(_parsed(type(into), field, {key: {}}), field.name)))
                yield from self._read_part(getattr(into, field.name)[part], item, at)

    def _set_items(self, into: Any, field: FieldDescriptor, items: list[tuple[Any, Any]], place: Place) -> Steps:
        """Set items of a list or map. The first part of an item is its index or key.

        A few items are decoded at once. If that fails, the invalid items are found by halving the list.
        """
        yield
        if _json_type(field):
            for index, item in items:
                yield from self._set_json_item(into, field, index, item, place)
                yield
            return
        plain = dict(items) if _is_map(field) else [item for _, item in items]
        if len(items) == 1:
            index = items[0][0]
            at = (*place, str(index) if _is_map(field) else index)
            if self._can_set(type(into), field, plain, at):
                into.MergeFrom(_parsed(type(into), field, plain))
        elif (
            len(items) <= AT_ONCE
            and _fits(plain, MAX_WIRE_DEPTH - len(place))
            and (parsed := _try_to_parse(type(into), field, plain))
        ):
            into.MergeFrom(parsed)
        else:
            middle = len(items) // 2
            yield from self._set_items(into, field, items[:middle], place)
            yield from self._set_items(into, field, items[middle:], place)

    def _set_json_item(self, into: Any, field: FieldDescriptor, index: Any, item: Any, place: Place) -> Steps:
        """Set an item of a list or map whose items are JSON values."""
        at = (*place, str(index) if _is_map(field) else index)
        if not self._is_json(_json_type(field), item, at):
            return
        if not _is_map(field):
            yield from self._fill(getattr(into, field.name).add(), item, at)
        elif self._can_set(type(into), field, {index: _empty(field)}, at):
            part = next(iter(getattr(_parsed(type(into), field, {index: _empty(field)}), field.name)))
            yield from self._fill(getattr(into, field.name)[part], item, at)

    def _is_json(self, name: str, value: Any, place: Place) -> bool:
        """Return whether a Struct, ListValue or Value can have a value. If not, record the error."""
        if name == "google.protobuf.Struct" and not isinstance(value, Mapping):
            self._wrong(place, f"expected a mapping for Struct, got {_kind_of(value)}")
        elif name == "google.protobuf.ListValue" and not isinstance(value, list | tuple):
            self._wrong(place, f"expected a list for ListValue, got {_kind_of(value)}")
        else:
            return not self._is_too_deep(place, value)
        return False

    def _fill(self, message: Any, value: Any, place: Place) -> Steps:
        """Set a message to a JSON value that it can have."""
        try:
            yield from json_value.fill(message, value)
        except _ERRORS as error:
            self._wrong(place, _first_line(error))

    def _read_any(self, into: Any, plain: Any, place: Place) -> Steps:
        if not isinstance(plain, Mapping):
            self._wrong(place, f"expected a mapping with {TYPE}, got {_kind_of(plain)}")
            return
        url = plain.get(TYPE)
        if not isinstance(url, str) or not url:
            self._fault(Violation("missing-type", place, f"{TYPE} is required: name the type, such as {_EXAMPLE}"))
            return
        removed = _REMOVED.match(name_in(url)) is not None
        kind = find_type(name_in(url)) if not removed else None
        if kind is None:
            if removed:
                successor = _FILTER.sub(r"envoy.extensions.filters.\1.\2.v3.\3", name_in(url))
                is_known = successor != name_in(url) and find_type(successor) is not None
                hint = f"; Envoy removed the v2 API{f': write {_PREFIX}{successor}' if is_known else ''}"
            elif self._suggests and (similar := similar_type(name_in(url))):
                hint = f"; did you mean {_PREFIX}{similar}?"
            else:
                hint = ""
            self._suggests = False  # once per message, because it takes milliseconds
            self._fault(Violation("unknown-type", (*place, TYPE), f"unknown type {url}{hint}"))
            return
        message, rest = kind(), {key: value for key, value in plain.items() if key != TYPE}
        if kind.DESCRIPTOR.full_name in _BY_VALUE:
            yield from self._read_by_value(message, rest, place)
        else:
            yield from self._read_part(message, rest, place)
        into.type_url = url if "/" in url else f"type.googleapis.com/{url}"
        into.value = message.SerializeToString(deterministic=True)

    def _read_by_value(self, message: Any, rest: Mapping[str, Any], place: Place) -> Steps:
        if "value" not in rest:
            self._wrong((*place, "value"), "is required")
            return
        if message.DESCRIPTOR.full_name in json_value.NAMES:
            if self._is_json(message.DESCRIPTOR.full_name, rest["value"], (*place, "value")):
                yield from self._fill(message, rest["value"], (*place, "value"))
            return
        if self._is_too_deep((*place, "value"), rest["value"]) or self._is_too_long(
            message.DESCRIPTOR.full_name, (*place, "value"), rest["value"]
        ):
            return
        try:
            json_format.ParseDict(rest["value"], message)
        except _ERRORS as error:
            self._wrong((*place, "value"), _first_line(error))

    def _check_struct(self, struct: Any, plain: Any, place: Place) -> Steps:
        """Check the value of a TypedStruct against its type.

        Unknown types are accepted, because Envoy knows more types.
        """
        kind = find_type(name_in(struct.type_url))
        value = plain.get("value") if isinstance(plain, Mapping) else None
        if kind is not None and isinstance(value, Mapping):
            yield from self.read(kind(), value, (*place, "value"))

    def _can_set(self, kind: type[Any], field: FieldDescriptor, value: Any, place: Place) -> bool:
        if self._is_too_deep(place, value):
            return False
        try:
            _parsed(kind, field, value)
        except _ERRORS as error:
            self._wrong(place, _first_line(error))
            return False
        return True

    def _set_value(self, into: Any, field: FieldDescriptor, value: Any, place: Place) -> Steps:
        if _json_type(field):
            if self._is_json(_json_type(field), value, place):
                yield from self._fill(getattr(into, field.name), value, place)
            return
        name = field.message_type.full_name if field.message_type is not None else ""
        if self._is_too_deep(place, value) or self._is_too_long(name, place, value):
            return
        try:
            json_format.ParseDict({field.json_name: value}, into)
        except _ERRORS as error:
            self._wrong(place, _first_line(error))

    def _is_too_deep(self, place: Place, value: Any) -> bool:
        """Return whether a value that is decoded as a whole is nested too deeply. If so, record the error."""
        if _fits(value, MAX_WIRE_DEPTH - len(place)):
            return False
        self._fault(Violation("too-deep", place, f"messages are nested more than {MAX_WIRE_DEPTH} deep"))
        return True

    def _is_too_long(self, name: str, place: Place, value: Any) -> bool:
        """Return whether the text of a message in `_CONVERTED` is too long. If so, record the error."""
        if name not in _CONVERTED or not isinstance(value, str) or len(value) <= LONGEST_TEXT:
            return False
        self._wrong(place, f"a {name} has at most {LONGEST_TEXT} characters")
        return True

    def _fault(self, violation: Violation) -> None:
        self.faults.append(violation)
        if len(self.faults) >= MAX_FAULTS:
            raise _TooManyFaults

    def _wrong(self, place: Place, text: str) -> None:
        self._fault(Violation("wrong-type", place, text))


_ERRORS = (
    json_format.ParseError,
    DecodeError,
    EncodeError,
    TypeError,
    LookupError,
    ValueError,
    OverflowError,
    RecursionError,
    AttributeError,
)


def _fits(value: Any, depth: int) -> bool:
    """Return whether the message of a JSON value has at most a given nesting depth."""
    if isinstance(value, Mapping):  # a Struct contains entries, which contain Values
        return depth >= 3 and all(_fits(item, depth - 3) for item in value.values())
    if isinstance(value, list | tuple):
        return depth >= 2 and all(_fits(item, depth - 2) for item in value)
    return depth >= 0


def _parsed(kind: type[Any], field: FieldDescriptor, value: Any) -> Any:
    return json_format.ParseDict({field.json_name: value}, kind())


def _try_to_parse(kind: type[Any], field: FieldDescriptor, value: Any) -> Any:
    """Return a message with one field, or None if its value is invalid."""
    try:
        return _parsed(kind, field, value)
    except _ERRORS:
        return None


def _field(descriptor: Any, key: object) -> FieldDescriptor | None:
    field = descriptor.fields_by_name.get(key) or descriptor.fields_by_camelcase_name.get(key)
    return field if field is not None else next((f for f in descriptor.fields if f.json_name == key), None)


def _unknown_field(descriptor: Any, place: Place, has_suggestion: bool) -> Violation:
    """Return the error of an unknown field, with the names of similar fields in the notation of its own name."""
    name = str(place[-1])
    names = descriptor.fields_by_name if name == name.lower() else descriptor.fields_by_camelcase_name
    suggestion = did_you_mean(name, names).removeprefix("; ") if has_suggestion else ""
    hint = f" ({suggestion})" if suggestion else ""  # what becomes of the message may follow
    return Violation("unknown-field", place, f"{descriptor.full_name} has no field {name}{hint}")


def _slot(field: FieldDescriptor) -> str:
    """Return the name of the oneof that contains a field, otherwise the field's own name.

    In a JSON object, at most one of the keys with the same slot may be set.
    """
    return f"oneof {field.containing_oneof.name}" if field.containing_oneof is not None else field.name


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_open(field: FieldDescriptor) -> bool:
    """Return whether the type of a field is a message that is decoded field by field."""
    return field.message_type is not None and field.message_type.full_name not in _BY_VALUE


def _json_type(field: FieldDescriptor) -> str:
    """Return the name of the type of a field or of its items if they are JSON values, otherwise ""."""
    kind = field.message_type
    if kind is not None and _is_map(field):
        kind = kind.fields_by_name["value"].message_type
    return kind.full_name if kind is not None and kind.full_name in json_value.NAMES else ""


def _empty(field: FieldDescriptor) -> Any:
    """Return the empty JSON value for an item of a field."""
    return {"google.protobuf.Struct": {}, "google.protobuf.ListValue": []}.get(_json_type(field))


def _takes_null(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == "google.protobuf.Value"


def _kind_of(value: Any) -> str:
    names: dict[type, str] = {
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), "nothing" if value is None else type(value).__name__)


_EXAMPLE = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
_REMOVED = re.compile(r"envoy\..*\.v2(alpha\d*)?\.", re.ASCII)
"""Matches the types that Envoy has removed."""
_FILTER = re.compile(r"^envoy\.config\.filter\.(http|network)\.(\w+)\.v2\w*\.(\w+)$", re.ASCII)
"""Matches the removed types of filters."""
_PREFIX = "type.googleapis.com/"
_FIELDS_BEFORE = re.compile(r"^(Failed to parse \w+ field: )+", re.ASCII)
_PLACE_AFTER = re.compile(r"\.? at [\w.\[\]]+$", re.ASCII)


def _first_line(error: Exception) -> str:
    """Return the first line of a decoding error, without the place, because the violation contains it."""
    line = _FIELDS_BEFORE.sub("", str(error).partition("\n")[0])
    return _PLACE_AFTER.sub("", line) or type(error).__name__
