"""Strategic merge patches of Pods.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ describes them. The items of
a merged list have the order of the patch. Any other item stays before the items that it preceded.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pilot.lib.text import cut
from webhook.pod.normal import without_nulls
from webhook.pod.schema import TYPES, SchemaField, Type

Plain = dict[str, Any]
_DELETE_ITEMS = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_NESTED = dict, list
_SHOWN = 200  # characters of an item in messages


class MergeError(ValueError):
    """A patch cannot be applied."""


def merge(original: Plain, patch: Plain, kind: Type | None) -> Plain:
    """Return the original with a strategic merge patch applied. Neither argument is modified. A null in the patch
    removes a field.

    Raise MergeError if a directive is invalid.
    """
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
    """Return a value that a patch adds, without nulls and directives."""
    if isinstance(value, dict):
        return {
            key: _added(item) if isinstance(item, _NESTED) else item
            for key, item in value.items()
            if item is not None and key[:1] != "$"
        }
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
    """Merge two lists whose items are identified by a key."""
    key, kind = field.key or "", TYPES.get(field.type)
    _check_items([*mine, *patch], key)
    changes = [item for item in patch if "$patch" not in item]
    if any(item.get("$patch") == "replace" for item in patch):
        return [_added(item) for item in changes]
    deleted = {_key(item, key) for item in patch if item.get("$patch") == "delete"}
    retained = [item for item in mine if item.get(key) not in deleted]
    places = {item.get(key): index for index, item in reversed(list(enumerate(retained)))}
    merged: dict[Any, Plain] = {}
    for item in changes:
        name = _key(item, key)
        before = merged.get(name) or (retained[places[name]] if name in places else None)
        merged[name] = _added(item) if before is None else merge(before, item, kind)
    others: deque[tuple[int, Plain]] = deque()
    repeated: dict[Any, list[Plain]] = {}
    for index, item in enumerate(retained):
        name = item.get(key)
        if name not in merged:
            others.append((index, item))
        elif index != places[name]:
            repeated.setdefault(name, []).append(item)
    ordered = [item for name in _patch_order(order, key, merged) for item in (merged[name], *repeated.get(name, ()))]
    return _interleave(others, ordered, places, key)


def _key(item: Plain, key: str) -> Any:
    if key not in item:
        raise MergeError(f"map: {cut(str(item), _SHOWN)} does not contain declared merge key: {key}")
    return item[key]


def _check_items(items: list[Any], key: str) -> None:
    """Raise MergeError unless all items are mappings with scalars as keys."""
    for item in items:
        if not isinstance(item, dict) or isinstance(item.get(key), dict | list):
            raise MergeError(f"the items are not mappings with a string or number in {key}")


def _patch_order(order: Any, key: str, merged: dict[Any, Plain]) -> list[Any]:
    """Return the keys of the patch's items in the order of `$setElementOrder`, or else in the order of the patch."""
    if not isinstance(order, list):
        return list(merged)
    _check_items(order, key)
    names = [item.get(key) for item in order]
    places = {name: index for index, name in reversed(list(enumerate(names)))}
    return sorted(merged, key=lambda name: places.get(name, len(names)))


def _interleave(
    pending: deque[tuple[int, Plain]], ordered: list[Plain], places: dict[Any, int], key: str
) -> list[Plain]:
    """Return the patch's items and the other items in one list. Each other item stays before the items that it
    preceded."""
    result: list[Plain] = []
    for item in ordered:
        place = places.get(item[key])
        while pending and place is not None and pending[0][0] < place:
            result.append(pending.popleft()[1])
        result.append(item)
    return result + [item for _, item in pending]
