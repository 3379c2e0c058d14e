"""Why plain data is not of a type: every place, by a walk along the type. For the slow path, once the fast conversion has failed."""

from __future__ import annotations

import base64
import binascii
import functools
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect as mi

from pilot.config.base import OneOf
from pilot.config.problem import Problem, below, error
from pilot.lib.duration import Duration, parse_duration

_ONE_AT_A_TIME = threading.RLock()
"""Held while msgspec looks at types, which it does lazily: two threads that did so at once have crashed the process."""
_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    type(None): "nothing",
}
_PYTHON = {mi.StrType: str, mi.BoolType: bool, mi.IntType: int, mi.FloatType: float}
_Check = Callable[[Any], Sequence[Problem]]


class _Checker(NamedTuple):
    """Finds what is wrong with values of a type. `costly`: to convert a right value takes less time than to ask."""

    problems: _Check
    costly: bool = False


class _CheckedStruct(NamedTuple):
    """The checkers of a struct's fields by their JSON names. `strict`: there may be no others; `groups`: names of which one may be set."""

    fields: dict[str, _Checker]
    strict: bool
    groups: list[list[str]]


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
        if problems := list(_checker_of(cast(Hashable, kind)).problems(value)):
            return None, problems
    try:
        return _convert(_prune(value, _type_info(cast(Hashable, kind)), any_spelling=False), kind), []
    except msgspec.ValidationError as fault:
        message, _, path = str(fault).partition(" - at `$")
        return None, [error("wrong-type", path.rstrip("`").removeprefix("."), message)]


def checked(value: Any, kind: type[Any], any_spelling: bool = True) -> tuple[Any, list[Problem]]:
    """Returns the data without its nulls, and every place where it is not of the type.

    `any_spelling`: field names of the protobuf files (snake_case) are taken as their JSON names, as protobuf's JSON readers do.
    """
    info = _type_info(cast(Hashable, kind))
    plain = _prune(value, info, any_spelling)
    return plain, list(_checker_of(cast(Hashable, kind)).problems(plain))


def _convert(value: Any, kind: Any) -> Any:
    with _ONE_AT_A_TIME:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=decode_extension)


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


@functools.cache
def _checker_of(kind: Hashable) -> _Checker:
    return _checker(_type_info(kind))


def _checker(kind: mi.Type) -> _Checker:
    """Returns the checker of a type. Those of the fields of a struct are made when the first value is checked, because types hold each other."""
    kind = _present(kind)
    match kind:
        case mi.StructType():
            return _Checker(functools.partial(_check_struct, kind.cls), costly=True)
        case mi.VarTupleType():
            item = _checker(kind.item_type)
            return _Checker(functools.partial(_check_list, item.problems), item.costly)
        case mi.DictType():
            value = functools.partial(
                _check_value, isinstance(kind.value_type, mi.StructType), _checker(kind.value_type).problems
            )
            return _Checker(functools.partial(_check_dict, isinstance(kind.key_type, mi.IntType), value), costly=True)
        case mi.LiteralType():
            return _Checker(functools.partial(_check_word, kind.values))
        case mi.CustomType():
            return _Checker(_check_duration)
        case mi.UnionType():
            choices = [t for t in kind.types if not isinstance(t, mi.NoneType)]
            names = " or ".join(sorted(_NAMES[_PYTHON[type(t)]] for t in choices))
            return _Checker(functools.partial(_check_union, names, [_checker(t).problems for t in choices]))
        case mi.AnyType():
            return _Checker(lambda _: ())
        case mi.BytesType():
            return _Checker(_check_base64)
        case mi.IntType():
            return _Checker(
                functools.partial(
                    _check_integer, -math.inf if kind.ge is None else kind.ge, math.inf if kind.le is None else kind.le
                )
            )
    return _Checker(functools.partial(_check_scalar, _PYTHON[type(kind)]))


@functools.cache
def _checked_struct(struct: type) -> _CheckedStruct:
    info = _type_info(struct)
    assert isinstance(info, mi.StructType)
    names = {field.name: field.encode_name for field in info.fields}
    groups = struct.groups if issubclass(struct, OneOf) else ()
    checkers = {name: _checker(kind) for name, kind in _fields(struct).items()}
    return _CheckedStruct(checkers, info.forbid_unknown_fields, [[names[field] for field in group] for group in groups])


def _check_struct(struct: type, value: Any) -> Sequence[Problem]:
    if not isinstance(value, dict):
        return _wrong("a mapping", value)
    checked = _checked_struct(struct)
    problems: list[Problem] = []
    for key, item in value.items():
        if item is None:
            continue
        if (checker := checked.fields.get(key)) is not None:
            if not (checker.costly and _fits({key: item}, struct)) and (found := checker.problems(item)):
                problems.extend(below(key, found))
        elif not isinstance(key, str):
            problems.append(error("wrong-type", f"[{key}]", f"expected text as key, got {_name(key)}"))
        elif checked.strict:
            problems.append(error("unknown-field", key, "there is no such field"))
    for group in checked.groups:
        there = [name for name in group if value.get(name) is not None]
        if len(there) > 1:
            problems.append(error("exclusive-fields", "", f"only one of {', '.join(there)} may be set"))
    return problems


def _check_list(check: _Check, value: Any) -> Sequence[Problem]:
    if not isinstance(value, list):
        return _wrong("a list", value)
    return [
        problem for index, item in enumerate(value) if (found := check(item)) for problem in below(f"[{index}]", found)
    ]


def _check_dict(numeric: bool, check: _Check, value: Any) -> Sequence[Problem]:
    if not isinstance(value, dict):
        return _wrong("a mapping", value)
    problems: list[Problem] = []
    for key, item in value.items():
        place = f"[{key}]"
        if numeric and not (isinstance(key, int) or (isinstance(key, str) and key.isascii() and key.isdecimal())):
            problems.append(error("wrong-type", place, f"expected a whole number as key, got {_shown(key)}"))
        elif not numeric and not isinstance(key, str):
            problems.append(error("wrong-type", place, f"expected text as key, got {_name(key)}: quote it"))
        problems.extend(below(place, check(item)))
    return problems


def _check_value(struct: bool, check: _Check, value: Any) -> Sequence[Problem]:
    """Checks a value of a mapping, where null is an empty struct."""
    return check({} if struct and value is None else value)


def _check_word(words: tuple[Any, ...], value: Any) -> Sequence[Problem]:
    if value in words:
        return ()
    return [error("bad-enum", "", f"expected one of {', '.join(map(str, words))}, got {_shown(value)}")]


def _check_union(names: str, checks: Sequence[_Check], value: Any) -> Sequence[Problem]:
    return _wrong(names, value) if all(check(value) for check in checks) else ()


def _check_duration(value: Any) -> Sequence[Problem]:
    try:
        decode_extension(Duration, value)
    except ValueError as reason:
        return [error("bad-duration", "", str(reason))]
    return ()


def _check_base64(value: Any) -> Sequence[Problem]:
    if not isinstance(value, str):
        return _wrong("base64 text", value)
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return [error("bad-base64", "", "this is not base64")]
    return ()


def _check_integer(low: float, high: float, value: Any) -> Sequence[Problem]:
    if type(value) is not int:
        return _wrong(_NAMES[int], value)
    if low <= value <= high:
        return ()
    return [error("out-of-range", "", f"expected a number of {low} to {high}, got {value}")]


def _check_scalar(python: type, value: Any) -> Sequence[Problem]:
    return () if type(value) is python or (python is float and type(value) is int) else _wrong(_NAMES[python], value)


def _wrong(expected: str, value: Any) -> Sequence[Problem]:
    hint = ": quote it" if expected == "text" and isinstance(value, (bool, int, float)) else ""
    return [error("wrong-type", "", f"expected {expected}, got {_name(value)}{hint}")]


def _name(value: Any) -> str:
    """Returns what a value is; one of a few words, with the value itself."""
    if isinstance(value, bool):
        return _shown(value)
    kind = _NAMES.get(type(value), type(value).__name__)
    return f"{kind} ({value!r})" if isinstance(value, (int, float)) else kind


def _shown(value: Any) -> str:
    return "true" if value is True else "false" if value is False else repr(value)
