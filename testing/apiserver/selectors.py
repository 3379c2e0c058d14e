"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from testing.apiserver.status_error import StatusError

Predicate = Callable[[Mapping[str, Any]], bool]
_SET = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s+\(([^)]*)\)\s*")
_COMMA = re.compile(r",(?![^(]*\))")


def selector(labels: str, fields: str) -> Predicate | None:
    """Return a predicate for label and field selectors, or None if both are empty.

    Raise StatusError if one is invalid.
    """
    tests = [
        *(_label(term.strip()) for term in _COMMA.split(labels) if term.strip()),
        *(_field(t.strip()) for t in fields.split(",") if t.strip()),
    ]
    return (lambda o: all(test(o) for test in tests)) if tests else None


def _labels_of(o: Mapping[str, Any]) -> Mapping[str, str]:
    return o.get("metadata", {}).get("labels") or {}


def _label(term: str) -> Predicate:
    if match := _SET.fullmatch(term):
        key, operator, values = match[1], match[2], {value.strip() for value in match[3].split(",")}
        return lambda o: (_labels_of(o).get(key) in values) == (operator == "in")
    key, operator, value = _split(term)
    if operator == "!=":
        return lambda o: _labels_of(o).get(key) != value
    if operator:
        return lambda o: _labels_of(o).get(key) == value
    if key.startswith("!"):
        return lambda o: key[1:] not in _labels_of(o)
    return lambda o: key in _labels_of(o)


def _field(term: str) -> Predicate:
    path, operator, value = _split(term)
    if not operator:
        raise StatusError(400, f"invalid field selector: {term}")
    return lambda o: (_at(o, path) == value) == (operator != "!=")


def _split(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        key, separator, value = term.partition(operator)
        if separator:
            return key.strip(), operator, value.strip()
    return term, "", ""


def _at(o: Any, path: str) -> str:
    for part in path.split("."):
        o = o.get(part, "") if isinstance(o, Mapping) else ""
    return str(o)


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels match a label selector object. An absent or empty selector matches everything."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(term, labels) for term in selector.get("matchExpressions") or ())


def _expression(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = term["key"], term.get("values") or ()
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels
