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
    """Return the target with a strategic merge patch applied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace" or not isinstance(target, dict):
        return _plain(patch)
    retained = patch.get(_RETAIN)
    out = {k: v for k, v in target.items() if retained is None or k in retained}
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
    items_by_key = {key_of(item, names): item for item in target}
    for item in patch:
        key = key_of(item, names)
        if item.get("$patch") == "delete":
            items_by_key.pop(key, None)
        else:
            items_by_key[key] = strategic_merge(items_by_key.get(key, {}), item)
    if order is None:
        return list(items_by_key.values())
    positions = {key_of(item, names): position for position, item in enumerate(order)}
    return [items_by_key[key] for key in sorted(items_by_key, key=lambda key: positions.get(key, len(positions)))]


def _plain(value: Any) -> Any:
    """Return a patch value without its directives."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if not k.startswith("$") and v is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value
