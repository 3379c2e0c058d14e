"""Python representations of Go values, as far as templates can distinguish them.

The following values have built-in types: nil is None. A bool is a bool, an int is an int, a float64 is a float, and a
string is a str. A []interface {} is a list, and a map[string]interface {} is a dict. This module defines classes for
the other types of template data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gotemplate.errors import ActionError


class Int64(int):
    """An int64, which is not accepted for an int parameter."""


class StringMap(dict[str, str]):
    """A map[string]string. Missing keys have the value ""."""


class StringList(list[str]):
    """A []string."""


class GoStruct:
    """A Go struct or a pointer to one. `type_name` is the type as %T prints it."""

    type_name = "struct {}"

    def member(self, name: str) -> Any:
        """Return the value of a field, or the result of a method without arguments. Raises ActionError if there is
        neither."""
        raise self.no_member(name)

    def no_member(self, name: str) -> ActionError:
        return ActionError(f"can't evaluate field {name} in type {self.type_name}")

    def method(self, name: str) -> Callable[..., Any] | None:
        """Return a method that takes arguments, or None if there is no such method."""
        return None

    def plain(self) -> Any:
        """Return the JSON representation."""
        return None

    def printed(self, verb: str) -> str:
        """Return the struct as %v prints it, or as %+v if `verb` is "+v"."""
        return "{}"


class NilPointer(GoStruct):
    """A typed nil pointer. Reading a field fails. `members` are the methods that accept a nil receiver."""

    def __init__(self, type_name: str, members: dict[str, Any] | None = None) -> None:
        self.type_name, self._members = type_name, members or {}

    def member(self, name: str) -> Any:
        if name in self._members:
            return self._members[name]
        raise ActionError(f"nil pointer evaluating {self.type_name}.{name}")

    def printed(self, verb: str) -> str:
        return "<nil>"


class Enum(str):
    """A protobuf enum value, which prints as its name. `is_zero` is true if its number is 0."""

    type_name = "int32"
    is_zero = False

    @classmethod
    def of(cls, text: str, is_zero: bool, type_name: str) -> Enum:
        """Return the enum value with a name."""
        value = cls(text)
        value.is_zero, value.type_name = is_zero, type_name
        return value

    def member(self, name: str) -> Any:
        """Return the result of String, which is the only method."""
        if name == "String":
            return str(self)
        raise ActionError(f"can't evaluate field {name} in type {self.type_name}")


def type_name(value: Any) -> str:
    """Return the type of a value as %T prints it."""
    if isinstance(value, GoStruct | Enum):
        return value.type_name
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return name
    return "<nil>"


_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Int64, "int64"),
    (int, "int"),
    (float, "float64"),
    (str, "string"),
    (StringList, "[]string"),
    (list, "[]interface {}"),
    (StringMap, "map[string]string"),
    (dict, "map[string]interface {}"),
)


def kind_name(value: Any) -> str:
    """Return the kind of a value as reflect.Kind prints it."""
    if value is None:
        return "invalid"
    if isinstance(value, GoStruct):
        return "ptr" if value.type_name.startswith("*") else "struct"
    name = type_name(value)
    return "slice" if name.startswith("[]") else "map" if name.startswith("map[") else name


def is_true(value: Any) -> bool:
    """Return whether a value is true, that is, neither nil nor zero nor empty. Structs are always true."""
    if type(value) is bool:
        return value
    if isinstance(value, Enum):
        return not value.is_zero
    return not isinstance(value, NilPointer) if isinstance(value, GoStruct) else bool(value)
