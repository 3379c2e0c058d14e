"""Validation of the types and names of an IstioOperator's fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from deploy.operator.input_origin import InputOrigin
from deploy.operator.operator_fields import FIELDS
from pilot.config.problem import Problem, error
from webhook.pod.quantity import canonical
from webhook.pod.schema import TYPES as POD_TYPES
from webhook.pod.schema import SchemaField, Type, read_types

TYPES = {**POD_TYPES, **read_types(FIELDS)}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, str) and value.isdecimal())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SCALARS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "bool": ("a boolean (true or false)", lambda value: isinstance(value, bool)),
    "int": ("an integer", _is_int),
    "count": ("an integer", _is_count),
    "number": ("a number", _is_number),
    "tag": ("a string or number", lambda value: isinstance(value, str) or _is_number(value)),
    "port": ("a number or string", lambda value: isinstance(value, str) or _is_int(value)),
    "quantity": ("a quantity such as 100m or 128Mi", lambda value: isinstance(value, str) or _is_number(value)),
    "map": ("a mapping", lambda value: isinstance(value, dict)),
    "maps": (
        "a list of mappings",
        lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    ),
}


_CUTOFF = 0.7
"""Minimum similarity of a suggested field."""


def check(value: Any, name: str, origin: InputOrigin, path: str = "") -> Iterator[Problem]:
    """Yield the problems of a value: wrong types and unknown fields. Null is equivalent to absence."""
    if name == "any" or value is None:
        return
    if name in TYPES:
        yield from _check_fields(value, TYPES[name], origin, path)
        return
    expected, fits = _SCALARS[name]
    if not fits(value):
        yield error("wrong-type", path, f"expected {expected}, got {_describe(value)}")
    elif name == "quantity":
        try:
            canonical(str(value))
        except ValueError:
            yield error("bad-quantity", path, f"{value!r} is not a quantity; write 500m (CPU) or 512Mi (memory)")


def _check_fields(value: Any, kind: Type, origin: InputOrigin, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield error("wrong-type", path, f"expected a mapping, got {_describe(value)}")
        return
    for key, item in value.items():
        place = f"{path}.{key}" if path else str(key)
        if key in kind.fields:
            yield from _check_field(item, kind.fields[key], origin, place)
        else:
            yield error("unknown-field", place, f"unknown field {key}{_suggest(str(key), item, kind, path)}")


def _suggest(key: str, value: Any, kind: Type, path: str) -> str:
    """Return the most similar field or, if none is similar, where an unknown field belongs. Values come first."""
    if kind is TYPES["Spec"] and key in TYPES["Values"].fields:
        return f"; did you mean {_values_path(key, value)}?"
    close = get_close_matches(key, kind.fields, 1, _CUTOFF)
    if close:
        return f"; did you mean {close[0]}?"
    parents = [name for name, f in kind.fields.items() if f.type in TYPES and key in TYPES[f.type].fields]
    if parents:
        place = ".".join((*path.split(".")[1:], parents[0], key))
        return f"; it belongs below a field such as {parents[0]}: write {place}"
    return ""


def _values_path(key: str, value: Any) -> str:
    """Return the path of a Helm value below `spec`. It includes the fields below while these are known and alone."""
    parts, field = ["values", key], TYPES["Values"].fields[key]
    while isinstance(value, dict) and len(value) == 1 and field.type in TYPES and not field.shape:
        [(name, value)] = value.items()
        if name not in TYPES[field.type].fields:
            break
        parts.append(name)
        field = TYPES[field.type].fields[name]
    return ".".join(parts)


def _hint(value: Any, field: SchemaField, origin: InputOrigin, path: str) -> str:
    """Return how to write the first field of a mapping as a field of a list's first item.

    If it is not a field of items that have names, it is the name of one.
    """
    if field.shape != "[" or not isinstance(value, dict) or not value:
        return ""
    name, item = next(iter(value.items()))
    fields = TYPES[field.type].fields if field.type in TYPES else {}
    if name not in fields and "name" in fields:
        name, item = "name", name
    if origin.is_assigned(path):
        return f": write {path.removeprefix('spec.')}[0].{name}"
    text = "…" if isinstance(item, dict | list) else str(item).lower() if isinstance(item, bool) else item
    return f": write a list: - {name}: {text}"


def _check_field(value: Any, field: SchemaField, origin: InputOrigin, path: str) -> Iterator[Problem]:
    if value is None or not field.shape:
        yield from check(value, field.type, origin, path)
    elif not isinstance(value, list if field.shape == "[" else dict):
        yield error(
            "wrong-type",
            path,
            f"expected a {'list' if field.shape == '[' else 'mapping'}, got {_describe(value)}"
            + _hint(value, field, origin, path),
        )
    else:
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            yield from check(item, field.type, origin, f"{path}[{key}]")


def _describe(value: Any) -> str:
    """Return a value as the user wrote it. If only the quotes are wrong, add a hint."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return f'the string "{value}"; remove the quotes'
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
