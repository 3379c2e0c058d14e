"""Template functions and the types of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gotemplate.errors import ActionError
from gotemplate.values import Enum, GoStruct, Int64, NilPointer, StringList, StringMap, type_name


class ParameterType(NamedTuple):
    """A parameter type: its name in Go, the Python types that it accepts, the subtypes that it rejects, and whether it
    accepts nil."""

    name: str
    types: tuple[type, ...]
    but: tuple[type, ...] = ()
    nil: bool = False

    def takes(self, value: Any) -> bool:
        """Return whether a parameter of this type accepts the value."""
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
    """A function that templates can call.

    `kinds` are the types of its parameters. If `variadic`, the last type applies to all remaining arguments. A `lazy`
    function receives functions that evaluate its arguments.
    """

    call: Callable[..., Any]
    kinds: tuple[ParameterType, ...]
    variadic: bool = False
    lazy: bool = False

    def wrong_count(self, count: int) -> str:
        """Return the error message for a number of arguments, or "" if the number is valid."""
        if self.variadic and count < len(self.kinds) - 1:
            return f"want at least {len(self.kinds) - 1} got {count}"
        if not self.variadic and count != len(self.kinds):
            return f"want {len(self.kinds)} got {count}"
        return ""

    def kind_of(self, index: int) -> ParameterType:
        """Return the type of the argument at an index."""
        return self.kinds[min(index, len(self.kinds) - 1)]


def takes(parameters: str, call: Callable[..., Any], lazy: bool = False) -> Function:
    """Return a template function. `parameters` is a list of type names from `KINDS`.

    A leading `...` makes the last parameter variadic.
    """
    words = parameters.split()
    variadic = bool(words) and words[-1].startswith("...")
    return Function(call, tuple(KINDS[word.removeprefix("...")] for word in words), variadic, lazy)


def check(kind: ParameterType, value: Any) -> Any:
    """Return the value if it is valid for the type. Raises ActionError otherwise."""
    if value is None:
        if kind.nil:
            return None
        raise ActionError(f"wrong type for value; expected {kind.name}; got interface {{}}")
    if not kind.takes(value):
        raise ActionError(f"wrong type for value; expected {kind.name}; got {type_name(value)}")
    return value
