"""Hints on what the author of a wrong field may have meant."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect as mi

from pilot.config.base import OneOf
from pilot.config.problem import Problem
from pilot.ingest.struct_fields import fields, present, type_info
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import cut

UNKNOWN_FIELD = "unknown-field"
MAX_SUGGESTIONS = 10
"""Maximum number of unknown fields of a value for which known fields are suggested. Each takes about 0.1 ms."""
_LONGEST_VALUE = 60
_MAX_PAIRS = 3
_PLAIN = re.compile(r"[A-Za-z/][-\w./]*", re.ASCII)
_SCALARS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
"""Words that YAML does not read as strings, in lower case."""
_PATH_PART = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]?")
_LABELS = ("matchLabels", "labels")
Fits = Callable[[str, Any], bool]
"""A function that returns whether a value is valid for a field of a struct."""


class _Message(NamedTuple):
    """A mapping on the way to a field: its path, the fields of its struct, and its content."""

    path: str
    fields: dict[str, mi.Type]
    content: Any


def with_suggestions(problems: list[Problem], kind: type[Any], value: Any) -> list[Problem]:
    """Return the problems of a value, with a suggestion for each of the first unknown fields."""
    unknown = [index for index, problem in enumerate(problems) if problem.code == UNKNOWN_FIELD]
    for index in unknown[:MAX_SUGGESTIONS]:
        problem = problems[index]
        parts = _PATH_PART.findall(problem.path)
        if parts and parts[-1][0]:
            messages = _messages_at(parts[:-1], type_info(cast(Hashable, kind)), value)
            hint = _field_hint(parts[-1][0], messages) if messages else ""
            problems[index] = msgspec.structs.replace(problem, message=problem.message + hint)
    return problems


def _messages_at(parents: Sequence[tuple[str, str]], kind: mi.Type, value: Any) -> list[_Message]:
    """Return the messages on a path: pairs of a field and "", or of "" and an index or key. Return [] if the last part
    is not a message."""
    messages: list[_Message] = []
    path = ""
    for name, key in (*parents, ("", "")):
        kind = present(kind)
        if isinstance(kind, mi.StructType):
            messages.append(_Message(path, fields(kind.cls), value))
            member = messages[-1].fields.get(name)
        elif isinstance(kind, mi.VarTupleType):
            member = kind.item_type
        else:
            member = kind.value_type if isinstance(kind, mi.DictType) else None
        if member is None:
            break
        path += f"[{key}]" if key else f".{name}" if path else name
        kind, value = member, _member(value, name or key)
    return messages if isinstance(kind, mi.StructType) and messages and messages[-1].path == path else []


def _member(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return value[int(key)] if key.isdecimal() and int(key) < len(value) else None
    return value.get(key) if isinstance(value, dict) else None


def _field_hint(name: str, messages: Sequence[_Message]) -> str:
    """Return a hint for an unknown field of the last message."""
    own = messages[-1]
    if suggestion := did_you_mean(name, own.fields):
        return suggestion
    if list(map(type, own.fields.values())) == [mi.IntType]:  # the number of a port
        return f"; the only field is {next(iter(own.fields))}"
    content = own.content.get(name) if isinstance(own.content, dict) else None
    if isinstance(content, list) and own.path.rpartition(".")[2].startswith(f"{name}["):
        return f"; it is in the list {name} itself: remove this line, and indent its items less"
    for parent in reversed(messages[:-1]):
        if name in parent.fields:
            return f"; it is a field of {parent.path or 'the level above'}: check the indentation"
    if isinstance(content, dict) and content and content.keys() <= own.fields.keys():
        return "; its fields belong one level higher: remove this line and its indentation"
    labels = next((field for field in _LABELS if field in own.fields), "")
    if labels and len(own.fields) <= 3:  # a selector or a subset
        if isinstance(content, str):
            return f"; write {labels}: {{{_shown(name)}: {_shown(content)}}}"
        if isinstance(content, dict) and name in _LABELS:
            return f"; did you mean {labels}?"
    for field, kind in own.fields.items():
        if isinstance(kind, mi.StructType) and name in fields(kind.cls):
            return f"; did you mean {field}.{name}?"
        item = present(kind.item_type) if isinstance(kind, mi.VarTupleType) else None
        if isinstance(item, mi.StructType) and name in fields(item.cls):
            return f"; it is a field of the items of {field}: indent it below {field}:, and begin it with -"
    for field, kind in messages[-2].fields.items() if len(messages) > 1 else ():
        if isinstance(kind, mi.StructType) and name in fields(kind.cls):
            return f"; it is a field of {f'{messages[-2].path}.{field}'.lstrip('.')}: move it there"
    return ""


def mapping_hint(struct: type, value: Any, fits: Fits) -> str:
    """Return how to write a value that is in the place of a struct, or "" if that is not obvious.

    The first field of most structs identifies or measures something, as `host`, `name` and `number` do.
    """
    types = fields(struct)
    if isinstance(value, list):
        first = value[0] if value else None
        name = next(iter(first), "") if isinstance(first, dict) else ""
        return f": remove one - before {name}" if name in types else ""
    if not isinstance(value, str | bool | int | float):
        return ""
    if isinstance(value, str) and {"service", "method"} <= types.keys() and value.count("/") == 1:
        service, _, method = value.partition("/")
        return f": write {{service: {_shown(service)}, method: {_shown(method)}}}"
    groups = struct.groups if issubclass(struct, OneOf) else ()
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    words = [name for name, kind in types.items() if isinstance(kind, mi.LiteralType)]
    for candidates in (words, *([names[field] for field in group] for group in groups), list(types)[:1]):
        if fitting := [f"{{{name}: {_shown(value)}}}" for name in candidates if fits(name, value)]:
            return ": write " + " or ".join(filter(None, (", ".join(fitting[:-1]), fitting[-1])))
    name, kind = next(iter(types.items()), ("", None))
    if isinstance(kind, mi.StructType) and fits(name, {(inner := next(iter(fields(kind.cls)), "")): value}):
        return f": write {{{name}: {{{inner}: {_shown(value)}}}}}"
    return ""


def mapping_of_names_hint(value: Any) -> str:
    """Return how to write a list of names with values, or of mappings, that is in the place of a mapping."""
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return ""
    pairs: list[tuple[Any, Any]] = []
    for item in value[:_MAX_PAIRS]:
        name = next((field for field in ("name", "key") if field in item), "")
        pairs += [(item[name], item["value"])] if name and "value" in item else item.items()
    pairs = pairs[:_MAX_PAIRS]
    if not pairs or not all(isinstance(part, str | bool | int | float) for pair in pairs for part in pair):
        return ""
    more = ", …" if len(value) > _MAX_PAIRS else ""
    return f": write {{{', '.join(f'{_shown(name)}: {_shown(text)}' for name, text in pairs)}{more}}}"


def list_hint(value: Any) -> str:
    """Return how to write a value that is in the place of a list."""
    if isinstance(value, dict):
        return ": begin each item with -"
    return f": write [{_shown(value)}]" if isinstance(value, str | bool | int | float) else ""


def _shown(value: Any) -> str:
    """Return a value as in YAML."""
    text = cut(value, _LONGEST_VALUE) if isinstance(value, str) else value
    is_plain = isinstance(text, str) and _PLAIN.fullmatch(text) and text.lower() not in _SCALARS
    return text if is_plain else json.dumps(text, ensure_ascii=False)
