"""Sprig's functions for defaults, types and conditions. https://masterminds.github.io/sprig/defaults.html,
…/reflection.html"""

from __future__ import annotations

from typing import Any

from gotemplate.function import Function, takes
from gotemplate.functions.lists import same
from gotemplate.values import is_true, kind_name, type_name


def default(otherwise: Any, *values: Any) -> Any:
    """Return the value, or `otherwise` if the value is empty."""
    return values[0] if values and is_true(values[0]) else otherwise


def coalesce(*values: Any) -> Any:
    """Return the first non-empty value, or nil if there is none."""
    return next((value for value in values if is_true(value)), None)


def fail(message: str) -> str:
    """Fail with a message."""
    raise ValueError(message)


DEFAULTS: dict[str, Function] = {
    "default": takes("any ...any", default),
    "empty": takes("any", lambda value: not is_true(value)),
    "coalesce": takes("...any", coalesce),
    "all": takes("...any", lambda *values: all(map(is_true, values))),
    "any": takes("...any", lambda *values: any(map(is_true, values))),
    "ternary": takes("any any bool", lambda yes, no, which: yes if which else no),
    "fail": takes("string", fail),
    "typeOf": takes("any", type_name),
    "typeIs": takes("string any", lambda name, value: name == type_name(value)),
    "typeIsLike": takes("string any", lambda name, value: type_name(value) in (name, f"*{name}")),
    "kindOf": takes("any", kind_name),
    "kindIs": takes("string any", lambda name, value: name == kind_name(value)),
    "deepEqual": takes("any any", same),
}
