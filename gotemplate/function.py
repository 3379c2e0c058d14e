"""A function of templates: what it takes, and what is said where it is given something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gotemplate.errors import ActionError
from gotemplate.values import Enum, GoStruct, Int64, NilPointer, StringList, StringMap, type_name


class ParameterType(NamedTuple):
    """A type of parameters: its name in Go, the Python types of its values, those among them that are not, and whether nil is one."""

    name: str
    types: tuple[type, ...]
    but: tuple[type, ...] = ()
    nil: bool = False

    def takes(self, value: Any) -> bool:
        """Returns whether a value can be given for a parameter of this type."""
        return (
            isinstance(value, self.types) and not isinstance(value, self.but)
            if self.but
            else isinstance(value, self.types)
        )


ANY = ParameterType("interface {}", (object,), nil=True)
KINDS = {
    "any": ANY,
    "string": ParameterType("string", (str,), (Enum,)),
    "int": ParameterType("int", (int,), (bool, Int64)),
    "int64": ParameterType("int64", (int,), (bool,)),
    "float": ParameterType("float64", (float, int), (bool,)),
    "bool": ParameterType("bool", (bool,)),
    "list": ParameterType("[]interface {}", (list,), nil=True),
    "strings": ParameterType("[]string", (StringList,), nil=True),
    "map": ParameterType("map[string]interface {}", (dict,), (StringMap,), nil=True),
    "texts": ParameterType("map[string]string", (StringMap,), nil=True),
    "struct": ParameterType("struct", (GoStruct,), (NilPointer,)),
    "pointer": ParameterType("struct", (GoStruct,), nil=True),
}


class Function(NamedTuple):
    """`kinds` are those of its parameters; the last one holds for all further arguments where `variadic`. `least` arguments it must have.
    A `lazy` one is given functions that evaluate its arguments."""

    call: Callable[..., Any]
    kinds: tuple[ParameterType, ...]
    variadic: bool = False
    lazy: bool = False

    def wrong_count(self, count: int) -> str:
        """Returns what is wrong with a number of arguments, "" where nothing is."""
        if self.variadic and count < len(self.kinds) - 1:
            return f"want at least {len(self.kinds) - 1} got {count}"
        if not self.variadic and count != len(self.kinds):
            return f"want {len(self.kinds)} got {count}"
        return ""

    def kind_of(self, index: int) -> ParameterType:
        """Returns the type of an argument."""
        return self.kinds[min(index, len(self.kinds) - 1)]


def takes(parameters: str, call: Callable[..., Any], lazy: bool = False) -> Function:
    """Returns a function of the parameters that are named, with spaces between; `...` before the last one: any number of them."""
    words = parameters.split()
    variadic = bool(words) and words[-1].startswith("...")
    return Function(call, tuple(KINDS[word.removeprefix("...")] for word in words), variadic, lazy)


def check(kind: ParameterType, value: Any) -> Any:
    """Returns the value as an argument of a type. ActionError where it is none."""
    if value is None:
        if kind.nil:
            return None
        raise ActionError(f"wrong type for value; expected {kind.name}; got interface {{}}")
    if not kind.takes(value):
        raise ActionError(f"wrong type for value; expected {kind.name}; got {type_name(value)}")
    return value
