"""Go's values in Python, as far as templates can tell them apart.

nil is None, bool, int and float64 are Python's, text is str, []interface {} a list, map[string]interface {} a dict. The classes here are
for the other types that data and functions of templates have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gotemplate.errors import ActionError


class Int64(int):
    """An int64, which no function takes for an int."""


class StringMap(dict[str, str]):
    """A map[string]string: a key that it has not has the value ""."""


class StringList(list[str]):
    """A []string."""


class GoStruct:
    """A struct of Go, or a pointer to one: it has fields and methods by name. `type_name` is as %T prints it."""

    type_name = "struct {}"

    def member(self, name: str) -> Any:
        """Returns the value of a field, or of a method without arguments. ActionError where there is neither."""
        raise self.no_member(name)

    def no_member(self, name: str) -> ActionError:
        return ActionError(f"can't evaluate field {name} in type {self.type_name}")

    def method(self, name: str) -> Callable[..., Any] | None:
        """Returns a method that takes arguments, None where there is none of that name."""
        return None

    def plain(self) -> Any:
        """Returns the struct as JSON has it."""
        return None

    def printed(self, verb: str) -> str:
        """Returns what %v prints, and %+v where `verb` is "+v"."""
        return "{}"


class NilPointer(GoStruct):
    """A pointer to nothing, of a type: methods that allow it can be called, fields cannot be read."""

    def __init__(self, type_name: str, members: dict[str, Any] | None = None) -> None:
        self.type_name, self._members = type_name, members or {}

    def member(self, name: str) -> Any:
        if name in self._members:
            return self._members[name]
        raise ActionError(f"nil pointer evaluating {self.type_name}.{name}")

    def printed(self, verb: str) -> str:
        return "<nil>"


class Enum(str):
    """A value of a protobuf enum, which prints as its name. `is_zero`: its number is 0."""

    type_name = "int32"
    is_zero = False

    @classmethod
    def of(cls, text: str, is_zero: bool, type_name: str) -> Enum:
        """Returns the value of a name."""
        made = cls(text)
        made.is_zero, made.type_name = is_zero, type_name
        return made

    def member(self, name: str) -> Any:
        """Returns what a method gives: only String is there."""
        if name == "String":
            return str(self)
        raise ActionError(f"can't evaluate field {name} in type {self.type_name}")


def type_name(value: Any) -> str:
    """Returns the name of a value's type as %T prints it."""
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
    """Returns the kind of a value as reflect names it."""
    if value is None:
        return "invalid"
    if isinstance(value, GoStruct):
        return "ptr" if value.type_name.startswith("*") else "struct"
    name = type_name(value)
    return "slice" if name.startswith("[]") else "map" if name.startswith("map[") else name


def is_true(value: Any) -> bool:
    """Returns whether a value counts as true: it is neither nil nor zero nor empty; a struct always is."""
    if isinstance(value, Enum):
        return not value.is_zero
    return not isinstance(value, NilPointer) if isinstance(value, GoStruct) else bool(value)
