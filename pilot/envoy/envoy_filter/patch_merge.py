"""Merges the value of a patch into a message, unless it breaks what Envoy asks of it: then the message stays as it was."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.lib.protobuf.constraints import find_broken, unpack
from pilot.lib.protobuf.fault import Place, Violation
from pilot.lib.protobuf.merge import merge
from pilot.lib.protobuf.reader import read_message
from pilot.lib.protobuf.types import find_type, name_in

_TYPED_STRUCTS = frozenset(("udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"))
CONFIG: Place = ("typed_config",)


def merge_value(into: Any, value: Any, patch: ParsedPatch, effects: Effects, place: Place = ()) -> bool:
    """Merges a part of the patch's value, which is at `place` there, into a message of its type; returns whether it fits."""
    tried = _fields_of(into, value)
    if tried is not None:
        merge(tried, value, patch.replaces_lists)
        broken = next(find_broken(tried, touched=value), None)
        if broken is not None:
            effects.refuse(patch, broken._replace(place=(*place, *broken.place)))
            return False
    merge(into, value, patch.replaces_lists)
    return True


def _fields_of(message: Any, value: Any) -> Any:
    """Returns a copy of nothing but those messages and lists of a message that a value of its type sets too, because a message may be large and
    a value is small. None where there are none: what is merged then is the value as it is, which is right alone."""
    found = None
    for field, _ in value.ListFields():
        if not _holds(message, field):
            continue
        found = found if found is not None else type(message)()
        part = getattr(found, field.name)
        if not field.is_repeated:
            part.SetInParent()
        part.MergeFrom(getattr(message, field.name))
    return found


def _holds(message: Any, field: Any) -> bool:
    """Returns whether a list, map or message is set in a message."""
    if field.is_repeated:
        return bool(getattr(message, field.name))
    return field.message_type is not None and bool(message.HasField(field.name))


def merge_packed(into: Any, value: Any, patch: ParsedPatch, effects: Effects, place: Place = CONFIG) -> bool:
    """Merges an Any of the patch's value into another Any, as the messages that are in them; returns whether it fits."""
    inner, patched = unpack(into), _unpack_as(name_in(into.type_url), value)
    if inner is None or patched is None or type(inner) is not type(patched):
        text = f"{_named(value)} cannot be merged into {name_in(into.type_url)}"
        effects.refuse(patch, Violation("wrong-type", (*place, "@type"), text))
        return False
    structured = name_in(value.type_url) in _TYPED_STRUCTS  # which could not be checked when it was read
    broken = next(find_broken(patched, partial=True), None) if structured else None
    if broken is not None:
        effects.refuse(patch, broken._replace(place=(*place, *broken.place)))
        return False
    if not merge_value(inner, patched, patch, effects, place):
        return False
    into.value = inner.SerializeToString(deterministic=True)
    return True


def merge_socket(into: Any, value: Any, patch: ParsedPatch, effects: Effects, place: Place) -> bool:
    """Merges a transport socket into one of the same name, as the messages that are in them."""
    if not value.HasField("typed_config") or not into.HasField("typed_config"):
        return merge_value(into, value, patch, effects, place)
    return merge_packed(into.typed_config, value.typed_config, patch, effects, (*place, "typed_config"))


def _unpack_as(name: str, value: Any) -> Any:
    """Returns the message in an Any; that of a TypedStruct, where a message of its own type is asked for."""
    found = unpack(value)
    if (
        found is None
        or found.DESCRIPTOR.full_name not in _TYPED_STRUCTS
        or name in _TYPED_STRUCTS
        or name_in(found.type_url) != name
    ):
        return found
    kind = find_type(name)
    message, faults = read_message(kind, json_format.MessageToDict(found.value)) if kind is not None else (None, ())
    return message if not faults else None


def _named(value: Any) -> str:
    found = unpack(value)
    inner = getattr(found, "type_url", "") if found is not None and found.DESCRIPTOR.full_name in _TYPED_STRUCTS else ""
    return name_in(inner or value.type_url)
