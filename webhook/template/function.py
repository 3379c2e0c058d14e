"""A function of templates: what it takes, and what is said where it is given something else."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from webhook.template.errors import ActionError
from webhook.template.values import Enum, GoStruct, Int64, NilPointer, StringList, StringMap, type_name


class Kind(NamedTuple):
    """A type of parameters: its name in Go, the Python types of its values, those among them that are not, and whether nil is one."""

    name: str
    types: tuple[type, ...]
    but: tuple[type, ...] = ()
    nil: bool = False

    def takes(self, value: Any) -> bool:
        """Returns whether a value can be given for a parameter of this type."""
        return isinstance(value, self.types) and not isinstance(value, self.but) if self.but else isinstance(value, self.types)


ANY = Kind("interface {}", (object,), nil=True)
KINDS = {
    "any": ANY,
    "string": Kind("string", (str,), (Enum,)),
    "int": Kind("int", (int,), (bool, Int64)),
    "int64": Kind("int64", (int,), (bool,)),
    "float": Kind("float64", (float, int), (bool,)),
    "bool": Kind("bool", (bool,)),
    "list": Kind("[]interface {}", (list,), nil=True),
    "strings": Kind("[]string", (StringList,), nil=True),
    "map": Kind("map[string]interface {}", (dict,), (StringMap,), nil=True),
    "texts": Kind("map[string]string", (StringMap,), nil=True),
    "struct": Kind("struct", (GoStruct,), (NilPointer,)),
    "pointer": Kind("struct", (GoStruct,), nil=True),
}


class Function(NamedTuple):
    """`kinds` are those of its parameters; the last one holds for all further arguments where `variadic`. `least` arguments it must have.
    A `lazy` one is given functions that evaluate its arguments."""

    call: Callable[..., Any]
    kinds: tuple[Kind, ...]
    variadic: bool = False
    lazy: bool = False

    def wrong_count(self, count: int) -> str:
        """Returns what is wrong with a number of arguments, "" where nothing is."""
        if self.variadic and count < len(self.kinds) - 1:
            return f"want at least {len(self.kinds) - 1} got {count}"
        if not self.variadic and count != len(self.kinds):
            return f"want {len(self.kinds)} got {count}"
        return ""

    def kind_of(self, index: int) -> Kind:
        """Returns the type of an argument."""
        return self.kinds[min(index, len(self.kinds) - 1)]


def takes(parameters: str, call: Callable[..., Any], lazy: bool = False) -> Function:
    """Returns a function of the parameters that are named, with spaces between; `...` before the last one: any number of them."""
    words = parameters.split()
    variadic = bool(words) and words[-1].startswith("...")
    return Function(call, tuple(KINDS[word.removeprefix("...")] for word in words), variadic, lazy)


def check(kind: Kind, value: Any) -> Any:
    """Returns the value as an argument of a type. ActionError where it is none."""
    if value is None:
        if kind.nil:
            return None
        raise ActionError(f"wrong type for value; expected {kind.name}; got interface {{}}")
    if not kind.takes(value):
        raise ActionError(f"wrong type for value; expected {kind.name}; got {type_name(value)}")
    return value
