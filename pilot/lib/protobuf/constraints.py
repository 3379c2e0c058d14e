"""Checks messages against the rules that their fields declare (`validate.rules`), as Envoy does.

This module traverses messages, and `field_rules` checks the value of one field. `envoy_rules` has the rules that Envoy
checks in its code.

https://github.com/bufbuild/protoc-gen-validate#constraint-rules
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import DecodeError
from validate import validate_pb2

from pilot.lib.protobuf.envoy_rules import find_faults
from pilot.lib.protobuf.fault import Place, Violation
from pilot.lib.protobuf.field_rules import check_together, rule_of, wrapped
from pilot.lib.protobuf.types import find_type, name_in

CODE = "refused-by-envoy"
Findings = Iterator[Violation | None]
"""Violations, and None after each step."""
_ANY = "google.protobuf.Any"
_rules, _required, _disabled, _ignored = (
    validate_pb2.rules,
    validate_pb2.required,
    validate_pb2.disabled,
    validate_pb2.ignored,
)


class _Field(NamedTuple):
    """A field and its rules. `matters_unset` is true if an absent field can violate them."""

    field: FieldDescriptor
    rules: Any
    matters_unset: bool


class _Message(NamedTuple):
    """The rules of a message type.

    `fields` are the fields that have rules, and `by_number` contains them keyed by field number. `oneofs` are the
    oneofs that are required. `parts` are the message fields without rules, because their messages may have rules.
    """

    fields: tuple[_Field, ...]
    by_number: Mapping[int, _Field]
    oneofs: tuple[OneofDescriptor, ...]
    parts: tuple[FieldDescriptor, ...]


_UNRULED = _Message((), {}, (), ())
"""The rules of a message type that has no rules, or for which validation is disabled."""


def find_broken(message: Any, partial: bool = False) -> Iterator[Violation]:
    """Yield the violations in a message and in its nested messages, including messages packed in an Any.

    If `partial` is true, the message is a patch for another message. Absent fields are not violations then, except in
    items of lists and maps.
    """
    return (violation for violation in find_broken_in_steps(message, partial) if violation is not None)


def find_broken_in_steps(message: Any, partial: bool = False) -> Findings:
    """Yield the violations as `find_broken` does, and None between steps."""
    yield from _walk(message, (), partial)


def find_overfull(into: Any, value: Any, replaces_lists: bool = False, place: Place = ()) -> Iterator[Violation]:
    """Yield the violations in lists and maps that would exist after `value` was merged into a message of the same type.

    A valid value cannot cause other violations. The cost depends on the size of the value, except for lists whose items
    must be distinct, which must not become longer than `MAX_DISTINCT`.
    """
    rules = _message(into.DESCRIPTOR).by_number
    for field, added in value.ListFields():
        at, ruled = (*place, field.name), rules.get(field.number)
        if field.is_repeated:
            existing = getattr(into, field.name) if not replaces_lists or _is_map(field) else ()
            texts = check_together(ruled.rules, existing, added) if ruled is not None and existing else ()
            yield from (Violation(CODE, at, text) for text in texts)
        elif field.message_type is not None and into.HasField(field.name):
            yield from find_overfull(getattr(into, field.name), added, replaces_lists, at)


def _walk(message: Any, place: Place, partial: bool) -> Findings:
    rules_of_type = _message(message.DESCRIPTOR)
    if rules_of_type is _UNRULED:
        return
    yield None
    if not partial:
        yield from (Violation(CODE, (*place, *at), text) for at, text in find_faults(message))
        yield from (
            Violation(CODE, place, f"one of {', '.join(f.name for f in oneof.fields)} is required")
            for oneof in rules_of_type.oneofs
            if message.WhichOneof(oneof.name) is None
        )
    for field, rules, matters_unset in rules_of_type.fields:
        if _is_set(message, field):
            yield from _broken(message, field, rules, place, partial)
        elif matters_unset and not partial:
            yield from _broken_unset(message, field, rules, (*place, field.name))
    for field in rules_of_type.parts:
        if _is_set(message, field):
            yield from _descend(message, field, (*place, field.name), partial)


def _broken_unset(message: Any, field: FieldDescriptor, rules: Any, place: Place) -> Findings:
    if field.message_type is not None and not field.is_repeated:
        kind = rules.WhichOneof("type")
        if rules.message.required or (kind is not None and getattr(getattr(rules, kind), "required", False)):
            yield Violation(CODE, place, "is required")
        return
    yield from (Violation(CODE, place, text) for text in rule_of(rules, field)(getattr(message, field.name)))


def _broken(message: Any, field: FieldDescriptor, rules: Any, place: Place, partial: bool) -> Findings:
    value, at = getattr(message, field.name), (*place, field.name)
    if rules.WhichOneof("type") is not None:
        yield from (Violation(CODE, at, text) for text in rule_of(rules, field)(wrapped(value)))
    if field.is_repeated and not _is_map(field):
        items = rules.repeated.items
        if items.WhichOneof("type") is not None:
            check = rule_of(items, field)
            for index, item in enumerate(value):
                yield from (Violation(CODE, (*at, index), text) for text in check(wrapped(item)))
                yield None
        if items.message.skip:
            return
    if field.message_type is not None and not rules.message.skip:
        yield from _descend(message, field, at, partial)


def _descend(message: Any, field: FieldDescriptor, place: Place, partial: bool) -> Findings:
    value = getattr(message, field.name)
    if _is_map(field):
        assert field.message_type is not None
        if field.message_type.fields_by_name["value"].message_type is not None:
            for key in sorted(value, key=str):
                yield from _enter(value[key], (*place, str(key)), partial=False)
    elif field.is_repeated:
        for index, item in enumerate(value):
            yield from _enter(item, (*place, index), partial=False)
    else:
        yield from _enter(value, place, partial)


def _enter(message: Any, place: Place, partial: bool) -> Findings:
    inner = message if message.DESCRIPTOR.full_name != _ANY else unpack(message)
    if inner is not None:
        yield from _walk(inner, place, partial)


def unpack(packed: Any) -> Any:
    """Return the message in an Any, or None if its type is unknown or its bytes are invalid."""
    kind = find_type(name_in(packed.type_url))
    try:
        return kind.FromString(packed.value) if kind is not None else None
    except (ValueError, DecodeError):  # DecodeError is a ValueError only in some implementations of protobuf
        return None


def _is_set(message: Any, field: FieldDescriptor) -> bool:
    if field.is_repeated:
        return len(getattr(message, field.name)) > 0
    return bool(
        message.HasField(field.name) if field.has_presence else getattr(message, field.name) != field.default_value
    )


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@functools.cache
def _message(kind: Descriptor) -> _Message:
    """Return the rules of a message type."""
    options = kind.GetOptions()
    if options.Extensions[_disabled] or options.Extensions[_ignored] or kind.file.package == "google.protobuf":
        return _UNRULED
    ruled = [(f, f.GetOptions().Extensions[_rules]) for f in kind.fields if f.GetOptions().HasExtension(_rules)]
    with_rules = {f.name for f, _ in ruled}
    fields = tuple(_Field(f, r, _matters_unset(f)) for f, r in ruled)
    return _Message(
        fields,
        {ruled_field.field.number: ruled_field for ruled_field in fields},
        tuple(o for o in kind.oneofs if o.GetOptions().Extensions[_required]),
        tuple(f for f in kind.fields if f.message_type is not None and f.name not in with_rules),
    )


def _matters_unset(field: FieldDescriptor) -> bool:
    """Return whether an absent field can violate its rules.

    Either its zero value is checked, or its message is required.
    """
    return not field.has_presence or (field.message_type is not None and field.containing_oneof is None)
