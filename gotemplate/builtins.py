"""The built-in functions of text/template. https://pkg.go.dev/text/template#hdr-Functions"""

from __future__ import annotations

import urllib.parse
from typing import Any

from gotemplate import compare
from gotemplate.errors import ActionError
from gotemplate.function import Function, takes
from gotemplate.printf import sprintf
from gotemplate.printing import join_printed, line_printed, to_text
from gotemplate.values import NilPointer, StringMap, is_true, kind_name, type_name

_HTML = str.maketrans(
    {"&": "&amp;", "'": "&#39;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "\0": "\N{REPLACEMENT CHARACTER}"}
)
_JS = str.maketrans(
    {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}
)


def _first_false(arguments: Any, dot: Any, slots: Any) -> Any:
    value = None
    for argument in arguments:
        value = argument(dot, slots)
        if not is_true(value):
            return value
    return value


def _first_true(arguments: Any, dot: Any, slots: Any) -> Any:
    value = None
    for argument in arguments:
        value = argument(dot, slots)
        if is_true(value):
            return value
    return value


def index(item: Any, *keys: Any) -> Any:
    """Return the result of indexing a value by each key in turn. A missing map key yields the zero value."""
    if item is None:
        raise ActionError("index of untyped nil")
    for key in keys:
        if isinstance(item, dict):
            if not isinstance(key, str):
                raise ActionError(
                    "value is nil; should be of type string"
                    if key is None
                    else f"value has type {type_name(key)}; should be string"
                )
            item = item.get(key, "" if isinstance(item, StringMap) else None)
        elif isinstance(item, list | str):
            item = _at(item, key)
        elif item is None or isinstance(item, NilPointer):
            raise ActionError("index of nil pointer")
        else:
            raise ActionError(f"can't index item of type {type_name(item)}")
    return item


def _at(item: Any, key: Any) -> Any:
    items = item.encode() if isinstance(item, str) else item
    place = _place(key, len(items))
    if place == len(items):
        raise ActionError(f"reflect: {kind_name(item)} index out of range")
    return items[place]


def _place(key: Any, most: int) -> int:
    if key is None:
        raise ActionError("cannot index slice/array with nil")
    if not isinstance(key, int) or isinstance(key, bool):
        raise ActionError(f"cannot index slice/array with type {type_name(key)}")
    if not 0 <= key <= most:
        raise ActionError(f"index out of range: {key}")
    return key


def length(item: Any) -> int:
    """Return the number of items in a list or map, or the number of bytes in a string."""
    if isinstance(item, str):
        return len(item.encode())
    if isinstance(item, list | dict):
        return len(item)
    raise ActionError(
        "reflect: call of reflect.Value.Type on zero Value" if item is None else f"len of type {type_name(item)}"
    )


def call(function: Any, *_: Any) -> Any:
    """Raise ActionError, because no template value is a function."""
    raise ActionError(
        "call of nil" if function is None else f"non-function {to_text(function)} of type {type_name(function)}"
    )


def _escapable(values: tuple[Any, ...]) -> str:
    return join_printed(tuple("<no value>" if v is None else v for v in values))


def _script(*values: Any) -> str:
    text = _escapable(values).translate(_JS)
    return "".join(c if c.isprintable() or c == "\x7f" else f"\\u{ord(c):04X}" for c in text)


def _query(*values: Any) -> str:
    return urllib.parse.quote_plus(_escapable(values))


def _not(value: Any) -> bool:
    return not is_true(value)


BUILTINS: dict[str, Function] = {
    "and": takes("...any", _first_false, lazy=True),
    "or": takes("...any", _first_true, lazy=True),
    "not": takes("any", _not),
    "call": takes("any ...any", call),
    "html": takes("...any", lambda *values: _escapable(values).translate(_HTML)),
    "index": takes("any ...any", index),
    "js": takes("...any", _script),
    "len": takes("any", length),
    "print": takes("...any", lambda *values: join_printed(values)),
    "printf": takes("string ...any", sprintf),
    "println": takes("...any", lambda *values: line_printed(values)),
    "urlquery": takes("...any", _query),
    "eq": takes("any ...any", compare.equal),
    "ne": takes("any any", compare.unequal),
    "lt": takes("any any", compare.less),
    "le": takes("any any", compare.less_or_equal),
    "gt": takes("any any", compare.greater),
    "ge": takes("any any", compare.greater_or_equal),
}
