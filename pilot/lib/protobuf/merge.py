"""Merges messages. Unlike protobuf's own merge, it replaces durations and can replace lists."""

from __future__ import annotations

from typing import Any

_DURATION = "google.protobuf.Duration"


def merge(into: Any, patch: Any, replace_lists: bool = False) -> None:
    """Merge `patch` into a message of the same type.

    Scalars and map entries are replaced, and messages are merged. Lists are replaced if `replace_lists` is true,
    otherwise they are appended.
    """
    for field, value in patch.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _merge_map(
                getattr(into, field.name), value, field.message_type.fields_by_name["value"].message_type is not None
            )
        elif field.is_repeated:
            if replace_lists:
                into.ClearField(field.name)
            getattr(into, field.name).MergeFrom(value)
        elif field.message_type is None:
            setattr(into, field.name, value)
        elif field.message_type.full_name == _DURATION:
            getattr(into, field.name).CopyFrom(value)
        else:
            part, exists = getattr(into, field.name), into.HasField(field.name)
            part.SetInParent()
            if exists:
                merge(part, value, replace_lists)
            else:
                part.MergeFrom(value)


def _merge_map(into: Any, patch: Any, of_messages: bool) -> None:
    for key in patch:
        if of_messages:
            into[key].CopyFrom(patch[key])
        else:
            into[key] = patch[key]
