"""Rules for the value of a single field. Rules that no Envoy resource uses are not implemented."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import re2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pilot.lib.addresses import is_ip

Check = Callable[[Any], Iterator[str]]
"""A function that yields a message for each rule that a value violates."""
MAX_DISTINCT = 1000
"""Maximum number of items of a list whose items must be distinct, if patches extend it. Each patch compares them."""
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.+", re.ASCII)
_NUMBERS = frozenset(
    (
        "float",
        "double",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
    )
)
_HEADER_NAME, _HEADER_VALUE = r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$", r"^[^\x00-\x08\x0A-\x1F\x7F]*$"
_LOOSE = r"^[^\x00\n\r]*$"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)


def wrapped(value: Any) -> Any:
    """Return the value in a wrapper message. Return any other value unchanged."""
    descriptor = getattr(value, "DESCRIPTOR", None)
    return value.value if descriptor is not None and descriptor.full_name in _WRAPPERS else value


def rule_of(rules: Any, field: FieldDescriptor) -> Check:
    """Return the check for a field's rules. Rules of an unknown type accept everything."""
    kind = rules.WhichOneof("type")
    if kind is None:
        return _nothing
    rule = getattr(rules, kind)
    if kind in _NUMBERS:
        return functools.partial(_check_number, rule)
    if kind == "duration":
        return functools.partial(_check_duration, rule)
    if kind == "enum":
        return functools.partial(_check_enum, rule, field)
    return functools.partial(_CHECKS[kind], rule) if kind in _CHECKS else _nothing


def _nothing(_: Any) -> Iterator[str]:
    return iter(())


# -- numbers and durations ---------------------------------------------------------------------------------------------


def _check_number(rule: Any, value: float) -> Iterator[str]:
    if getattr(rule, "ignore_empty", False) and not value:
        return
    limits = {name: getattr(rule, name) for name in ("gt", "gte", "lt", "lte") if rule.HasField(name)}
    yield from _check_limits(limits, value, str)
    yield from _check_members(rule, value)


def _check_duration(rule: Any, value: Any) -> Iterator[str]:
    limits = {name: _nanos(getattr(rule, name)) for name in ("gt", "gte", "lt", "lte") if rule.HasField(name)}
    yield from _check_limits(limits, _nanos(value), lambda nanos: f"{nanos / 1e9:g}s")
    if rule.HasField("const") and _nanos(value) != _nanos(rule.const):
        yield f"must be {_nanos(rule.const) / 1e9:g}s"


def _nanos(value: Any) -> int:
    return int(value.seconds) * 10**9 + int(value.nanos)


def _check_limits(limits: dict[str, Any], value: Any, show: Callable[[Any], str]) -> Iterator[str]:
    """Yield a message if a value violates the limits.

    If the lower limit exceeds the upper limit, values between them are rejected.
    """
    above = ("gt" in limits and value > limits["gt"]) or ("gte" in limits and value >= limits["gte"])
    below = ("lt" in limits and value < limits["lt"]) or ("lte" in limits and value <= limits["lte"])
    low, high = limits.get("gt", limits.get("gte")), limits.get("lt", limits.get("lte"))
    texts = {"gt": "more than", "gte": "at least", "lt": "less than", "lte": "at most"}
    conditions = [f"{texts[name]} {show(limit)}" for name, limit in limits.items()]
    if low is not None and high is not None and low > high:
        if not above and not below:
            yield f"must be {' or '.join(conditions)}"
    elif (low is not None and not above) or (high is not None and not below):
        yield f"must be {' and '.join(conditions)}"


def _check_members(rule: Any, value: Any) -> Iterator[str]:
    if rule.HasField("const") and value != rule.const:
        yield f"must be {rule.const!r}"
    allowed, forbidden = getattr(rule, "in"), rule.not_in
    if allowed and value not in allowed:
        yield f"must be one of {', '.join(map(str, allowed))}"
    if value in forbidden:
        yield f"must not be {value!r}"


def _check_enum(rule: Any, field: FieldDescriptor, value: int) -> Iterator[str]:
    if (
        rule.defined_only
        and field.enum_type is not None
        and not field.is_repeated
        and value not in field.enum_type.values_by_number
    ):
        yield f"{field.enum_type.name} has no value {value}"
    yield from _check_members(rule, value)


def _check_bool(rule: Any, value: bool) -> Iterator[str]:
    if rule.HasField("const") and value != rule.const:
        yield f"must be {str(rule.const).lower()}"


# -- text and bytes ----------------------------------------------------------------------------------------------------


def _check_string(rule: Any, value: str) -> Iterator[str]:
    if rule.ignore_empty and not value:
        return
    yield from _check_length(len(value), rule, ("len", "min_len", "max_len"), "characters")
    yield from _check_length(len(value.encode()), rule, ("len_bytes", "min_bytes", "max_bytes"), "bytes")
    yield from _check_pattern(rule, value)
    for name, holds in (("prefix", value.startswith), ("suffix", value.endswith), ("contains", value.__contains__)):
        if rule.HasField(name) and not holds(getattr(rule, name)):
            yield (
                f"must contain {getattr(rule, name)!r}"
                if name == "contains"
                else f"must have the {name} {getattr(rule, name)!r}"
            )
    if rule.HasField("not_contains") and rule.not_contains in value:
        yield f"must not contain {rule.not_contains!r}"
    format_name = rule.WhichOneof("well_known")
    if format_name in _WELL_KNOWN and getattr(rule, format_name) and not _WELL_KNOWN[format_name](value):
        yield f"{value!r} is not a valid {format_name.replace('_', ' ')}"
    yield from _check_members(rule, value)


def _check_pattern(rule: Any, value: str) -> Iterator[str]:
    pattern = rule.pattern if rule.HasField("pattern") else ""
    if rule.WhichOneof("well_known") == "well_known_regex":
        strict = not rule.HasField("strict") or rule.strict
        pattern = {1: _HEADER_NAME if strict else _LOOSE, 2: _HEADER_VALUE if strict else _LOOSE}.get(
            rule.well_known_regex, ""
        )
        if rule.well_known_regex == 1 and not value:
            return
    if pattern and re2.search(pattern, value) is None:
        yield f"{value!r} does not match {pattern}"


def _check_length(length: int, rule: Any, names: tuple[str, str, str], unit: str) -> Iterator[str]:
    exact, least, most = names
    if rule.HasField(exact) and length != getattr(rule, exact):
        yield f"must have {getattr(rule, exact)} {unit}"
    if rule.HasField(least) and length < getattr(rule, least):
        yield f"must have at least {getattr(rule, least)} {unit}"
    if rule.HasField(most) and length > getattr(rule, most):
        yield f"must have at most {getattr(rule, most)} {unit}"


def _is_host(text: str) -> bool:
    name = text.removesuffix(".")
    return 0 < len(name) <= 253 and all(_LABEL.fullmatch(label) for label in name.split("."))


_WELL_KNOWN: dict[str, Callable[[str], bool]] = {
    "hostname": _is_host,
    "ip": is_ip,
    "ipv4": lambda text: is_ip(text) and ":" not in text,
    "ipv6": lambda text: is_ip(text) and ":" in text,
    "address": lambda text: is_ip(text) or _is_host(text),
    "uri": lambda text: _SCHEME.fullmatch(text) is not None,
}


def _check_bytes(rule: Any, value: bytes) -> Iterator[str]:
    if not (rule.ignore_empty and not value):
        yield from _check_length(len(value), rule, ("len", "min_len", "max_len"), "bytes")


# -- lists, maps and Any -----------------------------------------------------------------------------------------------


def _check_repeated(rule: Any, value: Any) -> Iterator[str]:
    if rule.ignore_empty and not len(value):
        return
    if rule.HasField("min_items") and len(value) < rule.min_items:
        yield f"must have at least {rule.min_items} items"
    if rule.HasField("max_items") and len(value) > rule.max_items:
        yield f"must have at most {rule.max_items} items"
    if rule.unique and len(set(map(_identity, value))) < len(value):
        yield "must not have duplicate items"


def check_together(rules: Any, existing: Any, added: Any) -> Iterator[str]:
    """Yield a message for each rule that two lists or two maps violate together, although neither does alone."""
    repeated, pairs = rules.repeated, rules.map
    if rules.WhichOneof("type") == "map":
        count = len(existing) + sum(key not in existing for key in added)
        if pairs.HasField("max_pairs") and count > pairs.max_pairs:
            yield f"must have at most {pairs.max_pairs} entries"
        return
    count = len(existing) + len(added)
    if repeated.HasField("max_items") and count > repeated.max_items:
        yield f"must have at most {repeated.max_items} items"
    if not repeated.unique:
        return
    if count > MAX_DISTINCT:
        yield f"must have at most {MAX_DISTINCT} items, which are compared with each other"
    elif len({*map(_identity, existing), *map(_identity, added)}) < count:
        yield "must not have duplicate items"


def _identity(item: Any) -> Any:
    """Return a hashable value by which an item of a list is compared."""
    return item.SerializeToString(deterministic=True) if isinstance(item, Message) else item


def _check_map(rule: Any, value: Any) -> Iterator[str]:
    if rule.ignore_empty and not len(value):
        return
    if rule.HasField("min_pairs") and len(value) < rule.min_pairs:
        yield f"must have at least {rule.min_pairs} entries"
    if rule.HasField("max_pairs") and len(value) > rule.max_pairs:
        yield f"must have at most {rule.max_pairs} entries"
    for part, items in (("keys", value), ("values", value.values())):
        rules = getattr(rule, part)
        kind = rules.WhichOneof("type")
        if kind in _CHECKS or kind in _NUMBERS:
            check = functools.partial(_check_number if kind in _NUMBERS else _CHECKS[kind], getattr(rules, kind))
            yield from (f"its {part}: {text}" for item in items for text in check(wrapped(item)))


def _check_any(rule: Any, value: Any) -> Iterator[str]:
    """Yield a message for each rule about type URLs that a value violates.

    For messages other than Any, the rules can only require the message.
    """
    allowed, url = getattr(rule, "in"), getattr(value, "type_url", "")
    if allowed and url not in allowed:
        yield f"must be of one of the types {', '.join(allowed)}"
    if url in rule.not_in:
        yield f"must not be of the type {url}"


_CHECKS: dict[str, Callable[[Any, Any], Iterator[str]]] = {
    "bool": _check_bool,
    "string": _check_string,
    "bytes": _check_bytes,
    "repeated": _check_repeated,
    "map": _check_map,
    "any": _check_any,
}
