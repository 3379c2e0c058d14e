"""Kubernetes objects as templates see them: with Go field names, and with zero values for absent fields."""

from __future__ import annotations

from typing import Any

from gotemplate.printing import to_text
from gotemplate.values import GoStruct, NilPointer, StringList, StringMap
from webhook.pod.schema import TYPES, SchemaField, Type

_ZEROS: dict[str, Any] = {"string": "", "int": 0, "bool": False, "any": None, "quantity": "0", "port": 0}


class ApiObject(GoStruct):
    """A template's view of an object. The data is not copied and must not be modified."""

    def __init__(self, data: dict[str, Any], kind: Type, pointer: bool = False) -> None:
        self.data, self._kind = data, kind
        self.type_name = f"{'*' if pointer else ''}v1.{kind.name}"
        self._made: dict[str, Any] = {}

    def member(self, name: str) -> Any:
        """Return the value of a field, or its zero value if the field is absent. Raise ActionError if there is no such
        field."""
        if name in self._made:
            return self._made[name]
        field = self._kind.by_go_name.get(name)
        if field is None:
            raise self.no_member(name)
        value = self._made[name] = _shown(self.data.get(field.name), field)
        return value

    def plain(self) -> dict[str, Any]:
        """Return the data in Go's field order. Zero values are omitted, except those that Go serializes."""
        result: dict[str, Any] = {}
        for field in self._kind.fields.values():
            value = self.data.get(field.name)
            if value is None and not field.pointer and not field.zero_is_absent and not field.shape:
                value = _ZEROS.get(field.type, {})
            if value is None or (field.zero_is_absent and not value and not isinstance(value, dict)):
                continue
            kind = TYPES.get(field.type)
            if kind is not None:
                value = [ApiObject(item, kind) for item in value] if field.shape else ApiObject(value, kind)
            result[field.name] = value
        return result

    def printed(self, verb: str) -> str:
        """Return the field values in braces, as Go prints a struct."""
        values = (self.member(name) for name in self._kind.by_go_name)
        shown = [to_text(value, verb) for value in values]
        if verb == "+v":
            shown = [f"{name}:{text}" for name, text in zip(self._kind.by_go_name, shown, strict=True)]
        return f"{{{' '.join(shown)}}}"


def _shown(value: Any, field: SchemaField) -> Any:
    kind = TYPES.get(field.type)
    if field.shape == "[":
        if kind is not None:
            return [ApiObject(item, kind) for item in value or ()]
        return StringList(value or ()) if field.type == "string" else list(value or ())
    if field.shape == "{":
        return StringMap(value or {}) if field.type == "string" else dict(value or {})
    if kind is not None:
        return (
            NilPointer(f"*v1.{kind.name}")
            if value is None and field.pointer
            else ApiObject(value or {}, kind, field.pointer)
        )
    return value if value is not None or field.pointer else _ZEROS[field.type]
