"""Merges the value of a patch into a message.

If the result would violate Envoy's constraints, the message stays unchanged.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.lib.protobuf.constraints import find_broken, find_overfull, unpack
from pilot.lib.protobuf.fault import Place, Violation
from pilot.lib.protobuf.merge import merge
from pilot.lib.protobuf.reader import read_message
from pilot.lib.protobuf.types import find_type, name_in

_TYPED_STRUCTS = frozenset(("udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"))
CONFIG: Place = ("typed_config",)


def merge_value(into: Any, value: Any, patch: ParsedPatch, effects: Effects, place: Place = ()) -> bool:
    """Merge `value`, the part of the patch's value at `place`, into a message of the same type.

    Return whether the value fits.
    """
    violation = next(find_overfull(into, value, patch.replaces_lists), None)
    if violation is not None:
        effects.record_misfit(patch, violation._replace(place=(*place, *violation.place)))
        return False
    merge(into, value, patch.replaces_lists)
    return True


def merge_packed(into: Any, value: Any, patch: ParsedPatch, effects: Effects, place: Place = CONFIG) -> bool:
    """Unpack two Anys, merge the message in `value` into the message in `into`, and pack the result.

    Return whether the value fits.
    """
    message, patch_message = unpack(into), _unpack_as(name_in(into.type_url), value)
    if message is None or patch_message is None or type(message) is not type(patch_message):
        text = f"{_type_name(value)} cannot be merged into {name_in(into.type_url)}"
        effects.record_misfit(patch, Violation("wrong-type", (*place, "@type"), text))
        return False
    structured = name_in(value.type_url) in _TYPED_STRUCTS  # was not checked when it was read
    violation = next(find_broken(patch_message, partial=True), None) if structured else None
    if violation is not None:
        effects.record_misfit(patch, violation._replace(place=(*place, *violation.place)))
        return False
    if not merge_value(message, patch_message, patch, effects, place):
        return False
    into.value = message.SerializeToString(deterministic=True)
    return True


def merge_socket(into: Any, value: Any, patch: ParsedPatch, effects: Effects, place: Place) -> bool:
    """Merge a transport socket and its configuration into another socket with the same name. Return whether it fits."""
    if not value.HasField("typed_config") or not into.HasField("typed_config"):
        return merge_value(into, value, patch, effects, place)
    return merge_packed(into.typed_config, value.typed_config, patch, effects, (*place, "typed_config"))


def _unpack_as(name: str, value: Any) -> Any:
    """Return the message in an Any, or None if it cannot be unpacked.

    A TypedStruct that contains a message of type `name` is converted to this type.
    """
    message = unpack(value)
    if (
        message is None
        or message.DESCRIPTOR.full_name not in _TYPED_STRUCTS
        or name in _TYPED_STRUCTS
        or name_in(message.type_url) != name
    ):
        return message
    message_type = find_type(name)
    typed, faults = (
        read_message(message_type, json_format.MessageToDict(message.value)) if message_type is not None else (None, ())
    )
    return typed if not faults else None


def _type_name(value: Any) -> str:
    message = unpack(value)
    type_url = (
        getattr(message, "type_url", "")
        if message is not None and message.DESCRIPTOR.full_name in _TYPED_STRUCTS
        else ""
    )
    return name_in(type_url or value.type_url)
