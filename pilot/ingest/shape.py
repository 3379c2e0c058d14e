"""Finds every mismatch between plain data and a type. This is slow, and only used if a fast conversion has failed."""

from __future__ import annotations

import base64
import binascii
import functools
import math
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect as mi

from pilot.config.base import Lenient, OneOf
from pilot.config.problem import LONGEST_FIELD, Problem, below, error, has_errors, warning
from pilot.ingest.field_hints import UNKNOWN_FIELD, list_hint, mapping_hint, mapping_of_names_hint, with_suggestions
from pilot.ingest.struct_fields import ONE_AT_A_TIME, fields, present, type_info
from pilot.lib.duration import Duration, parse_duration
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import cut

_inspected: set[Any] = set()
_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    type(None): "nothing",
}
_PYTHON = {mi.StrType: str, mi.BoolType: bool, mi.IntType: int, mi.FloatType: float}
_LEADING_DIGITS = re.compile(r"-?[0-9]{1,18}(?![0-9.])", re.ASCII)
_Check = Callable[[Any], Sequence[Problem]]
MAX_MISMATCHES = 1000
"""Number of problems of a value after which the rest of a list or mapping is not checked."""


class _Checker(NamedTuple):
    """Checks values of a type. If `costly` is true, converting a valid value is faster than checking it."""

    problems: _Check
    costly: bool = False


class _CheckedStruct(NamedTuple):
    """The checkers of a struct's fields, keyed by JSON name.

    If `strict` is true, unknown fields are errors. At most one field of each group in `groups` may be set.
    """

    fields: dict[str, _Checker]
    strict: bool
    groups: list[list[str]]


def encode_extension(value: Any) -> Any:
    """Return a duration as nanoseconds for msgspec, because JSON has no such type."""
    if isinstance(value, Duration):
        return int(value)
    raise NotImplementedError(type(value))


def decode_extension(kind: type, value: Any) -> Any:
    """Decode a duration for msgspec, because JSON has no such type."""
    if kind is Duration:
        if not isinstance(value, str):
            raise ValueError(f"expected a duration like 1.5s, got {_name(value)}")
        return parse_duration(value)
    raise NotImplementedError(kind)


def decode(value: Any, kind: type[Any], strict: bool = True) -> tuple[Any, list[Problem]]:
    """Return the value converted to a type, or None if there is an error, and its problems.

    Paths are relative to the value. Field names may be in snake_case, as in protobuf's JSON parsers. A null field is
    treated as absent, as in the API server. Unknown fields are errors if `strict` is true. Otherwise, they are ignored
    with a warning.
    """
    try:
        return _convert(value, kind), []
    except msgspec.ValidationError:
        plain, problems = normalize(value, kind, strict)
    if not has_errors(problems):
        try:
            return _convert(plain, kind), with_suggestions(problems, kind, value)
        except msgspec.ValidationError as fault:
            message, _, path = str(fault).partition(" - at `$")
        problems = with_suggestions([*_checker_of(cast(Hashable, kind)).problems(plain), *problems], kind, value)
        if not has_errors(problems):
            problems.append(error("wrong-type", path.rstrip("`").removeprefix("."), message))
    return None, problems


def checked(value: Any, kind: type[Any]) -> tuple[Any, list[Problem]]:
    """Return the data without nulls and with JSON names, and a problem for each mismatch with a type."""
    plain, problems = normalize(value, kind, strict=True)
    return plain, with_suggestions([*_checker_of(cast(Hashable, kind)).problems(plain), *problems], kind, value)


def normalize(value: Any, kind: type[Any], strict: bool) -> tuple[Any, list[Problem]]:
    """Return the data without nulls, with JSON names and, unless `strict`, without unknown fields, and its problems.

    Unknown fields of structs that permit them are kept, and are not reported.
    """
    problems: list[Problem] = []
    return _Normalization(strict, problems).value(value, type_info(cast(Hashable, kind)), ""), problems


def unknown_field(path: str, strict: bool) -> Problem:
    """Return the problem of an unknown field."""
    if strict:
        return error(UNKNOWN_FIELD, path, "unknown field")
    return warning(UNKNOWN_FIELD, path, "unknown field: it is ignored")


def _convert(value: Any, kind: Any) -> Any:
    """Return the value converted to a type. Conversions of large values in threads must not wait for each other."""
    if kind in _inspected:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=decode_extension)
    with ONE_AT_A_TIME:
        try:
            return msgspec.convert(value, kind, str_keys=True, dec_hook=decode_extension)
        finally:
            _inspected.add(kind)


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value matches a type. The result False is inconclusive if the type has rules other than those of
    its fields."""
    try:
        _convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


@functools.cache
def _spellings(struct: type) -> dict[str, str]:
    """Return the JSON names of a message's fields, keyed by their protobuf names where these differ."""
    info = type_info(struct)
    assert isinstance(info, mi.StructType)
    if issubclass(struct, Lenient):
        return {}
    names = {field.name.rstrip("_"): field.encode_name for field in info.fields}
    return {name: json_name for name, json_name in names.items() if name != json_name}


class _Normalization(NamedTuple):
    """Normalizes data and adds to `problems`. See `normalize`."""

    strict: bool
    problems: list[Problem]

    def value(self, value: Any, kind: mi.Type, path: str) -> Any:
        kind = present(kind)
        if isinstance(kind, mi.StructType) and isinstance(value, dict):
            return self._message(value, kind, path)
        if isinstance(kind, mi.VarTupleType) and isinstance(value, list) and _is_nested(kind.item_type):
            return [self.value(item, kind.item_type, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(kind, mi.DictType) and isinstance(value, dict) and _is_nested(kind.value_type):
            empty = isinstance(kind.value_type, mi.StructType)
            return {
                key: self.value({} if item is None and empty else item, kind.value_type, f"{path}[{_field_name(key)}]")
                for key, item in value.items()
            }
        return value

    def _message(self, value: dict[Any, Any], kind: mi.StructType, path: str) -> dict[Any, Any]:
        types, spellings = fields(kind.cls), _spellings(kind.cls)
        plain: dict[Any, Any] = {}
        for key, item in value.items():
            if item is None:
                continue
            name = spellings.get(key, key)
            if name in plain:
                self.problems.append(error("exclusive-fields", path, f"only one spelling of {name} may be set"))
            elif name in types:
                is_nested = _is_nested(types[name]) and not _fits({name: item}, kind.cls)
                plain[name] = self.value(item, types[name], _join(path, name)) if is_nested else item
            elif self._keeps(key, kind):
                plain[name] = item
            else:
                self.problems.append(unknown_field(_join(path, _field_name(key)), strict=False))
        return plain

    def _keeps(self, key: Any, kind: mi.StructType) -> bool:
        """Return whether an unknown field is kept. If the message does not permit it, it becomes an error."""
        is_ignored = kind.forbid_unknown_fields and isinstance(key, str) and len(self.problems) < MAX_MISMATCHES
        return self.strict or not is_ignored


def _is_nested(kind: mi.Type) -> bool:
    return isinstance(present(kind), (mi.StructType, mi.VarTupleType, mi.DictType))


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _field_name(key: Any) -> str:
    return cut(str(key), LONGEST_FIELD)


@functools.cache
def _checker_of(kind: Hashable) -> _Checker:
    return _checker(type_info(kind))


def _checker(kind: mi.Type) -> _Checker:
    """Return the checker of a type. Types can be recursive, so a struct's field checkers are created on first use."""
    kind = present(kind)
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
    info = type_info(struct)
    assert isinstance(info, mi.StructType)
    names = {field.name: field.encode_name for field in info.fields}
    groups = struct.groups if issubclass(struct, OneOf) else ()
    checkers = {name: _checker(kind) for name, kind in fields(struct).items()}
    return _CheckedStruct(checkers, info.forbid_unknown_fields, [[names[field] for field in group] for group in groups])


def _check_struct(struct: type, value: Any) -> Sequence[Problem]:
    if not isinstance(value, dict):
        hint = mapping_hint(struct, value, lambda field, item: _fits({field: item}, struct))
        return _wrong("a mapping", value, hint)
    checked = _checked_struct(struct)
    problems: list[Problem] = []
    for key, item in value.items():
        if len(problems) >= MAX_MISMATCHES:
            break
        if item is None:
            continue
        if (checker := checked.fields.get(key)) is not None:
            if not (checker.costly and _fits({key: item}, struct)) and (faults := checker.problems(item)):
                problems.extend(below(key, faults))
        elif not isinstance(key, str):
            problems.append(error("wrong-type", f"[{key}]", f"expected a string as key, got {_name(key)}"))
        elif checked.strict:
            problems.append(unknown_field(key, strict=True))
    for group in checked.groups:
        there = [name for name in group if value.get(name) is not None]
        if len(there) > 1:
            problems.append(error("exclusive-fields", "", f"only one of {', '.join(there)} may be set"))
    return problems


def _check_list(check: _Check, value: Any) -> Sequence[Problem]:
    if not isinstance(value, list):
        return _wrong("a list", value, list_hint(value))
    problems: list[Problem] = []
    for index, item in enumerate(value):
        if faults := check(item):
            problems.extend(below(f"[{index}]", faults))
            if len(problems) >= MAX_MISMATCHES:
                break
    return problems


def _check_dict(numeric: bool, check: _Check, value: Any) -> Sequence[Problem]:
    if not isinstance(value, dict):
        return _wrong("a mapping", value, mapping_of_names_hint(value))
    problems: list[Problem] = []
    for key, item in value.items():
        place = f"[{key}]"
        if numeric and not (isinstance(key, int) or (isinstance(key, str) and key.isascii() and key.isdecimal())):
            problems.append(error("wrong-type", place, f"expected an integer as key, got {_shown(key)}"))
        elif not numeric and not isinstance(key, str):
            problems.append(error("wrong-type", place, f"expected a string as key, got {_name(key)}: quote it"))
        faults = check(item)
        if faults and key == "matchLabels" and isinstance(item, dict):
            faults = [error("wrong-type", "", "expected a label, got a mapping: write the labels without matchLabels")]
        problems.extend(below(place, faults))
        if len(problems) >= MAX_MISMATCHES:
            break
    return problems


def _check_value(struct: bool, check: _Check, value: Any) -> Sequence[Problem]:
    """Check a value of a mapping. If the values are structs, null is treated as an empty struct."""
    return check({} if struct and value is None else value)


def _check_word(words: tuple[Any, ...], value: Any) -> Sequence[Problem]:
    if value in words:
        return ()
    hint = did_you_mean(value, (word for word in words if isinstance(word, str))) if isinstance(value, str) else ""
    return [error("bad-enum", "", f"expected one of {', '.join(map(str, words))}, got {_shown(value)}{hint}")]


def _check_union(names: str, checks: Sequence[_Check], value: Any) -> Sequence[Problem]:
    return _wrong(names, value) if all(check(value) for check in checks) else ()


def _check_duration(value: Any) -> Sequence[Problem]:
    try:
        decode_extension(Duration, value)
    except ValueError as reason:
        form = ": use units h, m, s and ms without spaces, such as 1.5s or 1h30m" if isinstance(value, str) else ""
        if type(value) is int:
            form = f": write {value}s for seconds"
        return [error("bad-duration", "", f"{reason}{form}")]
    return ()


def _check_base64(value: Any) -> Sequence[Problem]:
    if not isinstance(value, str):
        return _wrong("a base64 string", value)
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return [error("bad-base64", "", "invalid base64")]
    return ()


def _check_integer(low: float, high: float, value: Any) -> Sequence[Problem]:
    if type(value) is not int:
        return _wrong(_NAMES[int], value)
    if low <= value <= high:
        return ()
    return [error("out-of-range", "", f"expected a number between {low} and {high}, got {value}")]


def _check_scalar(python: type, value: Any) -> Sequence[Problem]:
    return () if type(value) is python or (python is float and type(value) is int) else _wrong(_NAMES[python], value)


def _wrong(expected: str, value: Any, hint: str = "") -> Sequence[Problem]:
    if expected == "a string" and isinstance(value, (bool, int, float)):
        hint = ": quote it"
    elif isinstance(value, str) and _fits_unquoted(value, expected):
        hint = ": remove the quotes"
    elif isinstance(value, str) and expected == _NAMES[int]:
        digits = _LEADING_DIGITS.match(value)
        fix = f": write {digits[0]}" if digits else ""
        return [error("wrong-type", "", f"expected {expected}, got {cut(value, LONGEST_FIELD)!r}{fix}")]
    return [error("wrong-type", "", f"expected {expected}, got {_name(value)}{hint}")]


def _fits_unquoted(text: str, expected: str) -> bool:
    """Return whether a string would have the expected type without its quotes."""
    if expected == _NAMES[bool]:
        return text in ("true", "false")
    return expected == _NAMES[int] and text.isascii() and text.isdecimal()


def _name(value: Any) -> str:
    """Return the description of a value for a message: its type, and also the value itself if it is a number. A Boolean
    is described by its value alone."""
    if isinstance(value, bool):
        return _shown(value)
    kind = _NAMES.get(type(value), type(value).__name__)
    return f"{kind} ({value!r})" if isinstance(value, (int, float)) else kind


def _shown(value: Any) -> str:
    return "true" if value is True else "false" if value is False else repr(value)
