"""Strategic merge: a patch of a Pod that says of lists only what differs.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ describes it. The order of a merged list is that
of the patch's items; those that the patch has not stay before the ones that they were before.
"""

from __future__ import annotations

from typing import Any

from webhook.pod.normal import without_nulls
from webhook.pod.schema import TYPES, SchemaField, Type

Plain = dict[str, Any]
_DELETE_ITEMS = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


class MergeError(ValueError):
    """A patch says something that cannot be done."""


def merge(original: Plain, patch: Plain, kind: Type | None) -> Plain:
    """Returns the data of a type with a patch applied; neither is changed. Null takes a field away. MergeError where a directive is wrong."""
    directive = patch.get("$patch")
    if directive is not None:
        return _directed(original, patch, directive)
    merged = dict(original)
    if isinstance(retained := patch.get(_RETAIN), list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for name, value in patch.items():
        if name.startswith("$"):
            if name.startswith(_DELETE_ITEMS):
                _drop(merged, name.removeprefix(_DELETE_ITEMS), value)
        elif value is None:
            merged.pop(name, None)
        elif name not in merged:
            merged[name] = _added(value)
        else:
            merged[name] = _merged(
                merged[name], value, kind.fields.get(name) if kind else None, patch.get(_SET_ORDER + name)
            )
    return merged


def _directed(original: Plain, patch: Plain, directive: Any) -> Plain:
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive == "merge":
        return merge(original, {key: value for key, value in patch.items() if key != "$patch"}, None)
    raise MergeError(f"unknown patch type: {directive}")


def _drop(merged: Plain, name: str, values: Any) -> None:
    if isinstance(merged.get(name), list) and isinstance(values, list):
        merged[name] = [item for item in merged[name] if item not in values]


def _added(value: Any) -> Any:
    """Returns what a patch adds where there was nothing: without nulls and directives."""
    if isinstance(value, dict):
        return {key: _added(item) for key, item in value.items() if item is not None and not key.startswith("$")}
    if isinstance(value, list):
        return [_added(item) for item in value if not (isinstance(item, dict) and "$patch" in item)]
    return value


def _merged(mine: Any, value: Any, field: SchemaField | None, order: Any) -> Any:
    if isinstance(mine, dict) and isinstance(value, dict):
        return merge(mine, value, TYPES.get(field.type) if field and not field.shape else None)
    if isinstance(mine, list) and isinstance(value, list) and field is not None and field.key is not None:
        if field.key:
            return _merge_items(mine, value, field, order)
        return [*value, *(item for item in mine if item not in value)]
    return without_nulls(value)


def _merge_items(mine: list[Any], patch: list[Any], field: SchemaField, order: Any) -> list[Any]:
    """Returns a list whose items are told apart by a key."""
    key, kind = field.key or "", TYPES.get(field.type)
    changes = [item for item in patch if "$patch" not in item]
    if any(item.get("$patch") == "replace" for item in patch):
        return [_added(item) for item in changes]
    gone = {_key(item, key) for item in patch if item.get("$patch") == "delete"}
    kept = [item for item in mine if item.get(key) not in gone]
    places = {item.get(key): index for index, item in reversed(list(enumerate(kept)))}
    made: dict[Any, Plain] = {}
    for item in changes:
        name = _key(item, key)
        before = made.get(name) or (kept[places[name]] if name in places else None)
        made[name] = _added(item) if before is None else merge(before, item, kind)
    others = [(index, item) for index, item in enumerate(kept) if item.get(key) not in made]
    repeated = {
        name: [item for index, item in enumerate(kept) if item.get(key) == name and index != places[name]]
        for name in made
        if name in places
    }
    ordered = [item for name in _wanted(order, key, made) for item in (made[name], *repeated.get(name, ()))]
    return _interleave(others, ordered, places, key)


def _key(item: Plain, key: str) -> Any:
    if key not in item:
        raise MergeError(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _wanted(order: Any, key: str, made: dict[Any, Plain]) -> list[Any]:
    """Returns the keys of the patch's items in the order that `$setElementOrder` asks for, else in their own."""
    if not isinstance(order, list):
        return list(made)
    named = [item.get(key) for item in order if isinstance(item, dict)]
    return sorted(made, key=lambda name: named.index(name) if name in named else len(named))


def _interleave(others: list[tuple[int, Plain]], ordered: list[Plain], places: dict[Any, int], key: str) -> list[Plain]:
    """Returns the patch's items with the others between: each before the first item, from the last place on, that it was before."""
    found: list[Plain] = []
    waiting = list(others)
    for item in ordered:
        place = places.get(item[key])
        while waiting and place is not None and waiting[0][0] < place:
            found.append(waiting.pop(0)[1])
        found.append(item)
    return found + [item for _, item in waiting]
