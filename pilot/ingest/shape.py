"""Why plain data is not of a type: every place, by a walk along the type. For the slow path, once the fast conversion has failed."""
from __future__ import annotations

import base64
import binascii
import functools
import math
import threading
from collections.abc import Hashable, Iterator
from typing import Any, cast

import msgspec
from msgspec import inspect as mi

from pilot.lib.duration import Duration, parse_duration
from pilot.model.config.base import OneOf
from pilot.model.problem import Problem, below, error

_ONE_AT_A_TIME = threading.RLock()
"""Held while msgspec looks at types, which it does lazily: two threads that did so at once have crashed the process."""
_NAMES = {str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "a mapping", list: "a list", type(None): "nothing"}


def decode_extension(kind: type, value: Any) -> Any:
    """Decodes the types that JSON has not, which are durations, for msgspec."""
    if kind is Duration:
        if not isinstance(value, str):
            raise ValueError(f"expected a duration like 1.5s, got {_name(value)}")
        return parse_duration(value)
    raise NotImplementedError(kind)


def decode(value: Any, kind: type[Any]) -> tuple[Any, list[Problem]]:
    """Returns the value of that type, or (None, every place where the data is not of it), with paths relative to it.

    A field that is null is absent, as for the API server.
    """
    try:
        return _convert(value, kind), []
    except msgspec.ValidationError:
        info = _type_info(cast(Hashable, kind))
    if problems := list(_check(value, info)):
        return None, problems
    try:
        return _convert(_prune(value, info, any_spelling=False), kind), []
    except msgspec.ValidationError as fault:
        message, _, path = str(fault).partition(" - at `$")
        return None, [error("wrong-type", path.rstrip("`").removeprefix("."), message)]


def checked(value: Any, kind: type[Any], any_spelling: bool = True) -> tuple[Any, list[Problem]]:
    """Returns the data without its nulls, and every place where it is not of the type.

    `any_spelling`: field names of the protobuf files (snake_case) are taken as their JSON names, as protobuf's JSON readers do.
    """
    info = _type_info(cast(Hashable, kind))
    plain = _prune(value, info, any_spelling)
    return plain, list(_check(plain, info))


def _convert(value: Any, kind: Any) -> Any:
    with _ONE_AT_A_TIME:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=decode_extension)


def _is_plain(value: Any, kind: mi.Type) -> bool:
    """Returns whether the value is of that type, one of text, truth values and words, or a list of such. Asking this costs less than trying.
    False says nothing of any other type."""
    match kind:
        case mi.StrType():
            return type(value) is str
        case mi.LiteralType():
            return type(value) is str and value in kind.values
        case mi.VarTupleType():
            return type(value) is list and all(_is_plain(item, kind.item_type) for item in value)
    return type(value) is bool and isinstance(kind, mi.BoolType)


def _fits(value: Any, kind: Any) -> bool:
    """Returns whether the value is of that type. False says nothing of a type that has more rules than those of its fields."""
    try:
        _convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


@functools.cache
def _type_info(kind: Hashable) -> mi.Type:
    with _ONE_AT_A_TIME:
        return mi.type_info(kind)


@functools.cache
def _fields(struct: type) -> dict[str, mi.Type]:
    """Returns the types of the fields of a struct by their JSON names, without `| None`."""
    info = _type_info(struct)
    assert isinstance(info, mi.StructType)
    return {field.encode_name: _present(field.type) for field in info.fields}


def _prune(value: Any, kind: mi.Type, any_spelling: bool) -> Any:
    kind = _present(kind)
    if isinstance(kind, mi.StructType) and isinstance(value, dict):
        fields = _fields(kind.cls)
        names = {field.name: field.encode_name for field in kind.fields} if any_spelling else {}
        found = ((names.get(k, k), v) for k, v in value.items() if v is not None)
        return {k: _prune(v, fields[k], any_spelling) if k in fields else v for k, v in found}
    if isinstance(kind, mi.VarTupleType) and isinstance(value, list):
        return [_prune(item, kind.item_type, any_spelling) for item in value]
    if isinstance(kind, mi.DictType) and isinstance(value, dict):
        empty = isinstance(kind.value_type, mi.StructType)
        return {k: _prune({} if v is None and empty else v, kind.value_type, any_spelling) for k, v in value.items()}
    return value


def _present(kind: mi.Type) -> mi.Type:
    """Returns X for `X | None`; a union of more stays."""
    if isinstance(kind, mi.UnionType):
        kinds = [t for t in kind.types if not isinstance(t, mi.NoneType)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind


def _check(value: Any, kind: mi.Type) -> Iterator[Problem]:
    kind = _present(kind)
    match kind:
        case mi.StructType():
            yield from _check_struct(value, kind) if isinstance(value, dict) else _wrong("a mapping", value)
        case mi.VarTupleType():
            if not isinstance(value, list):
                yield from _wrong("a list", value)
                return
            for index, item in enumerate(value):
                yield from below(f"[{index}]", _check(item, kind.item_type))
        case mi.DictType():
            yield from _check_dict(value, kind) if isinstance(value, dict) else _wrong("a mapping", value)
        case mi.LiteralType():
            if value not in kind.values:
                yield error("bad-enum", "", f"expected one of {', '.join(map(str, kind.values))}, got {_shown(value)}")
        case mi.CustomType():
            yield from _check_duration(value)
        case mi.UnionType():
            choices = [t for t in kind.types if not isinstance(t, mi.NoneType)]
            if all(any(_check(value, t)) for t in choices):
                yield from _wrong(" or ".join(sorted(_NAMES[_python(t)] for t in choices)), value)
        case _:
            yield from _check_scalar(value, kind)


def _check_struct(value: dict[Any, Any], kind: mi.StructType) -> Iterator[Problem]:
    fields = _fields(kind.cls)
    for key, item in value.items():
        if item is None:
            continue
        if (known := fields.get(key)) is not None:
            if not _is_plain(item, known) and not _fits({key: item}, kind.cls):
                yield from below(str(key), _check(item, known))
        elif not isinstance(key, str):
            yield error("wrong-type", f"[{key}]", f"expected text as key, got {_name(key)}")
        elif kind.forbid_unknown_fields:
            yield error("unknown-field", key, "there is no such field")
    if issubclass(kind.cls, OneOf):
        names = {field.name: field.encode_name for field in kind.fields}
        for group in kind.cls.groups:
            there = [names[field] for field in group if value.get(names[field]) is not None]
            if len(there) > 1:
                yield error("exclusive-fields", "", f"only one of {', '.join(there)} may be set")


def _check_dict(value: dict[Any, Any], kind: mi.DictType) -> Iterator[Problem]:
    empty = isinstance(kind.value_type, mi.StructType)
    for key, item in value.items():
        place = f"[{key}]"
        numeric = isinstance(kind.key_type, mi.IntType)
        if numeric and not (isinstance(key, int) or (isinstance(key, str) and key.isascii() and key.isdecimal())):
            yield error("wrong-type", place, f"expected a whole number as key, got {_shown(key)}")
        elif not numeric and not isinstance(key, str):
            yield error("wrong-type", place, f"expected text as key, got {_name(key)}: quote it")
        yield from below(place, _check({} if item is None and empty else item, kind.value_type))


def _check_duration(value: Any) -> Iterator[Problem]:
    try:
        decode_extension(Duration, value)
    except ValueError as reason:
        yield error("bad-duration", "", str(reason))


def _check_scalar(value: Any, kind: mi.Type) -> Iterator[Problem]:
    if isinstance(kind, mi.AnyType):
        return
    python = _python(kind)
    if isinstance(kind, mi.BytesType):
        if not isinstance(value, str):
            yield from _wrong("base64 text", value)
            return
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            yield error("bad-base64", "", "this is not base64")
        return
    number: Any = value
    if type(value) is not python and not (python is float and type(value) is int):
        yield from _wrong(_NAMES[python], value)
    elif isinstance(kind, mi.IntType):
        low, high = kind.ge or 0, kind.le or math.inf
        if not low <= number <= high:
            yield error("out-of-range", "", f"expected a number of {low} to {high}, got {value}")


def _python(kind: mi.Type) -> type:
    match kind:
        case mi.StrType():
            return str
        case mi.BoolType():
            return bool
        case mi.IntType():
            return int
        case mi.FloatType():
            return float
    return bytes


def _wrong(expected: str, value: Any) -> Iterator[Problem]:
    hint = ": quote it" if expected == "text" and isinstance(value, (bool, int, float)) else ""
    yield error("wrong-type", "", f"expected {expected}, got {_name(value)}{hint}")


def _name(value: Any) -> str:
    """Returns what a value is; one of a few words, with the value itself."""
    if isinstance(value, bool):
        return _shown(value)
    kind = _NAMES.get(type(value), type(value).__name__)
    return f"{kind} ({value!r})" if isinstance(value, (int, float)) else kind


def _shown(value: Any) -> str:
    return "true" if value is True else "false" if value is False else repr(value)
