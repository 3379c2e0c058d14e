"""Sprig's list functions. https://masterminds.github.io/sprig/lists.html"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gotemplate.function import Function, takes
from gotemplate.functions.numbers import to_int64
from gotemplate.functions.text import strings_of
from gotemplate.printing import to_text
from gotemplate.values import StringList, is_true, kind_name

_NIL = "runtime error: invalid memory address or nil pointer dereference"


def _items(value: Any, action: str) -> list[Any]:
    """Return the items of a list. Raises ValueError if the value is not a list."""
    if not isinstance(value, list):
        if value is None:
            raise ValueError(_NIL)
        raise ValueError(f"Cannot {action} type {kind_name(value)}{' as list' if action == 'concat' else ''}")
    return value


def same(first: Any, second: Any) -> bool:
    """Return whether two values are deeply equal, including their types."""
    if type(first) is not type(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(v, second[k]) for k, v in first.items())
    return bool(first == second)


def append(values: Any, value: Any) -> list[Any]:
    """Return the list with an item appended."""
    return [*_items(values, "push on"), value]


def prepend(values: Any, value: Any) -> list[Any]:
    """Return the list with an item prepended."""
    return [value, *_items(values, "prepend on")]


def uniq(values: Any) -> list[Any]:
    """Return the list without duplicates."""
    unique: list[Any] = []
    for item in _items(values, "find uniq on"):
        if not any(same(item, other) for other in unique):
            unique.append(item)
    return unique


def without(values: Any, *excluded: Any) -> list[Any]:
    """Return the list without the excluded items."""
    return [item for item in _items(values, "find without on") if not any(same(item, other) for other in excluded)]


def has(value: Any, values: Any) -> bool:
    """Return whether a list contains an item."""
    return values is not None and any(same(value, item) for item in _items(values, "find has on"))


def part(values: Any, *bounds: Any) -> Any:
    """Return the items from the first bound up to but excluding the second. For an empty list, return nil."""
    if not isinstance(values, list):
        if values is None:
            raise ValueError(_NIL)
        raise ValueError(f"list should be type of slice or array but {kind_name(values)}")
    if not values:
        return None
    begin = to_int64(bounds[0]) if bounds else 0
    end = to_int64(bounds[1]) if len(bounds) > 1 else len(values)
    if not 0 <= begin <= end <= len(values):
        raise ValueError("reflect.Value.Slice: slice index out of bounds")
    return type(values)(values[begin:end])


def concat(*lists: Any) -> list[Any]:
    """Return the items of all lists in one list."""
    return [item for values in lists for item in _items(values, "concat")]


def chunk(size: int, values: Any) -> list[Any]:
    """Split the list into lists of at most `size` items."""
    items = _items(values, "chunk")
    if size <= 0:
        raise ValueError("runtime error: makeslice: len out of range")
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def sort_alphabetically(values: Any) -> StringList:
    """Return the items as strings in alphabetical order."""
    return StringList(sorted(strings_of(values))) if isinstance(values, list) else StringList([to_text(values)])


def until(start: int, stop: int, step: int) -> list[int]:
    """Return the numbers from `start` up to but excluding `stop`."""
    return list(range(start, stop, step)) if step else []


def sequence(*bounds: int) -> str:
    """Return numbers separated by spaces, as seq(1) does. The arguments are LAST, FIRST LAST or FIRST STEP LAST."""
    if not 1 <= len(bounds) <= 3:
        return ""
    start, end = bounds[0] if len(bounds) > 1 else 1, bounds[-1]
    direction = -1 if end < start else 1
    step = bounds[1] if len(bounds) == 3 else direction
    return " ".join(map(str, until(start, end + direction, step)))


def _ends(action: str, pick: Callable[[list[Any]], Any]) -> Function:
    return takes("any", lambda values: pick(_items(values, f"find {action} on")))


_BOTH: dict[str, Function] = {  # each also as mustX
    "append": takes("any any", append),
    "push": takes("any any", append),
    "prepend": takes("any any", prepend),
    "first": _ends("first", lambda items: items[0] if items else None),
    "last": _ends("last", lambda items: items[-1] if items else None),
    "rest": _ends("rest", lambda items: items[1:]),
    "initial": _ends("initial", lambda items: items[:-1]),
    "reverse": _ends("reverse", lambda items: list(reversed(items))),
    "compact": takes("any", lambda values: [item for item in _items(values, "compact on") if is_true(item)]),
    "uniq": takes("any", uniq),
    "without": takes("any ...any", without),
    "has": takes("any any", has),
    "slice": takes("any ...any", part),
    "chunk": takes("int any", chunk),
}
LISTS: dict[str, Function] = {
    **_BOTH,
    **{f"must{name[0].upper()}{name[1:]}": function for name, function in _BOTH.items()},
    "list": takes("...any", lambda *items: list(items)),
    "tuple": takes("...any", lambda *items: list(items)),
    "concat": takes("...any", concat),
    "sortAlpha": takes("any", sort_alphabetically),
    "until": takes("int", lambda count: until(0, count, 1) or until(0, count, -1)),
    "untilStep": takes("int int int", until),
    "seq": takes("...int", sequence),
}
