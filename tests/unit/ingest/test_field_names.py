"""Field names of Istio's kinds: both spellings of every field are accepted, and unknown fields are ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pilot.config.catalogue import CATALOGUE
from pilot.config.kind import AnyKind
from pilot.ingest import shape

KINDS = [pytest.param(kind, id=kind.id.name) for kind in CATALOGUE if kind.is_istio]
SCALARS: dict[str, Any] = {
    "Duration": "1s",
    "Struct": {},
    "Value": 1,
    "ListValue": [],
    "StringValue": "a",
    "BoolValue": True,
}
Nest = Callable[[Any], Any]


def messages(
    message: Descriptor, nest: Nest = lambda value: value, above: tuple[Descriptor, ...] = ()
) -> Iterator[tuple[Descriptor, Nest]]:
    """Yield each message in a message, with a function that nests a value of it in a value of the whole message."""
    yield message, nest
    for field in message.fields:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_name["value"].message_type
        if inner is None or inner.full_name.startswith("google.protobuf.") or inner in (message, *above):
            continue

        def nest_field(value: Any, field: FieldDescriptor = field, nest: Nest = nest) -> Any:
            return nest({field.json_name: in_field(field, value)})

        yield from messages(inner, nest_field, (message, *above))


def in_field(field: FieldDescriptor, value: Any) -> Any:
    """Return the value of a field that contains a message: the message, a list of it, or a mapping to it."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {"1": value}
    return [value] if field.is_repeated else value


def example(field: FieldDescriptor) -> Any:
    """Return a value of a field."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        inner_field = inner.fields_by_name["value"]
        return {"1": example(inner_field)}
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "YQ=="
    if field.enum_type is not None:
        value: Any = field.enum_type.values[-1].name
    elif inner is not None:
        value = SCALARS.get(inner.name, 1 if inner.full_name.startswith("google.protobuf.") else {})
    else:
        value = {FieldDescriptor.CPPTYPE_STRING: "a", FieldDescriptor.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
    return [value] if field.is_repeated else value


@pytest.mark.parametrize("kind", KINDS)
def test_both_spellings_of_every_field_are_accepted(kind: AnyKind) -> None:
    fields = [(field, nest) for message, nest in messages(kind.message.DESCRIPTOR) for field in message.fields]
    assert fields
    for field, nest in fields:
        camel, snake = ({name: example(field)} for name in (field.json_name, field.name))
        decoded, problems = shape.decode(nest(camel), kind.struct)
        assert (decoded is not None, problems) == (True, []), field.full_name
        assert shape.decode(nest(snake), kind.struct) == (decoded, []), field.full_name


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_fields_of_every_message_are_ignored_with_a_warning(kind: AnyKind) -> None:
    for message, nest in messages(kind.message.DESCRIPTOR):
        expected, problems = shape.decode(nest({}), kind.struct, strict=False)
        assert not problems, message.full_name
        decoded, problems = shape.decode(nest({"nobodyKnows": {"a": [1]}}), kind.struct, strict=False)
        assert decoded == expected
        assert [(p.code, str(p.severity)) for p in problems] == [("unknown-field", "warning")], message.full_name
        assert problems[0].path.split(".")[-1] == "nobodyKnows"
