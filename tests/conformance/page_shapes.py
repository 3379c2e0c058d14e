"""Shapes of JSON pages: the paths of their keys, with the types of the values."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tests.conformance.scenario import Plain

Shape = dict[str, set[str]]
"""Types by path. The items of a list share one path, and packed messages have their type in it."""
PLACEHOLDER = re.compile(r"^<(?:string|number|bool|null|list|object)(?:\|(?:string|number|bool|null|list|object))*>$")
"""A value in a recording that is reduced to its types."""


@dataclasses.dataclass(frozen=True)
class ShapeRules:
    """Paths with a special treatment: objects with variable keys, values that are not compared below, and ignored paths."""

    fold: list[re.Pattern[str]]
    cut: list[re.Pattern[str]]
    ignored: list[re.Pattern[str]]

    @classmethod
    def of(cls, page: Plain) -> ShapeRules:
        return cls(*([re.compile(pattern) for pattern in page.get(name, [])] for name in ("fold", "cut", "ignored")))


def shape_of(value: Any, rules: ShapeRules) -> Shape:
    """Return the shape of a page."""
    shape: Shape = {}
    _add(value, rules, "$", shape)
    return shape


def _add(value: Any, rules: ShapeRules, path: str, shape: Shape) -> None:
    if isinstance(value, dict) and isinstance(value.get("@type"), str):
        path += f"<{value['@type'].rsplit('.', 1)[-1]}>"
    if any(pattern.search(path) for pattern in rules.ignored):
        return
    shape.setdefault(path, set()).update(_types_of(value))
    if any(pattern.search(path) for pattern in rules.cut):
        return
    if isinstance(value, dict):
        folded = any(pattern.search(path) for pattern in rules.fold)
        for key, item in value.items():
            _add(item, rules, f"{path}.{'*' if folded else key}", shape)
    elif isinstance(value, list):
        for item in value:
            _add(item, rules, f"{path}[]", shape)


def _types_of(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(value[1:-1].split("|")) if PLACEHOLDER.match(value) else {"string"}
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"bool"}
    if isinstance(value, int | float):
        return {"number"}
    return {"list"} if isinstance(value, list) else {"object"}
