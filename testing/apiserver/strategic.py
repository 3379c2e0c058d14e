"""Strategic merge patches, which merge lists by the keys of their items.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from testing.apiserver.list_merging import is_set, item_keys, key_of

_ORDER, _FROM_LIST, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def strategic_merge(target: Any, patch: Any) -> Any:
    """Return the target changed by a strategic merge patch."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace" or not isinstance(target, dict):
        return _plain(patch)
    kept = patch.get(_RETAIN)
    out = {k: v for k, v in target.items() if kept is None or k in kept}
    for field, value in patch.items():
        if field.startswith(_FROM_LIST):
            name = field.removeprefix(_FROM_LIST)
            out[name] = [item for item in out.get(name, []) if item not in value]
        elif field.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            out.pop(field, None)
        elif isinstance(value, list):
            out[field] = _merge_lists(field, out.get(field) or [], value, patch.get(_ORDER + field))
        else:
            out[field] = strategic_merge(out.get(field), value)
    return out


def _merge_lists(field: str, target: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_plain(item) for item in patch if not (isinstance(item, dict) and item.get("$patch"))]
    names = item_keys(field, [*target, *patch], built_in=True)[:1]
    if not names:
        return (
            [*target, *(item for item in patch if item not in target)]
            if is_set(field)
            else [_plain(item) for item in patch]
        )
    found = {key_of(item, names): item for item in target}
    for item in patch:
        key = key_of(item, names)
        if item.get("$patch") == "delete":
            found.pop(key, None)
        else:
            found[key] = strategic_merge(found.get(key, {}), item)
    if order is None:
        return list(found.values())
    places = {key_of(item, names): place for place, item in enumerate(order)}
    return [found[key] for key in sorted(found, key=lambda key: places.get(key, len(places)))]


def _plain(value: Any) -> Any:
    """Return a value without what speaks to the merge alone."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if not k.startswith("$") and v is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value
