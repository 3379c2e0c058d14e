"""Sprig's map functions. https://masterminds.github.io/sprig/dicts.html"""

from __future__ import annotations

import copy
from typing import Any

from gotemplate.function import Function, takes
from gotemplate.printing import to_text
from gotemplate.values import StringList, StringMap, is_true, type_name

Map = dict[str, Any]


def make(*pairs: Any) -> Map:
    """Return a map. The arguments are alternating keys and values. If the last key has no value, its value is ""."""
    mapping: Map = {to_text(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=False)}
    if len(pairs) % 2:
        mapping[to_text(pairs[-1])] = ""
    return mapping


def assign(mapping: Map | None, key: str, value: Any) -> Map:
    """Set a key of the map, and return the map."""
    if mapping is None:
        raise ValueError("assignment to entry in nil map")
    mapping[key] = value
    return mapping


def unset(mapping: Map, key: str) -> Map:
    """Remove a key from the map, and return the map."""
    mapping.pop(key, None)
    return mapping


def merge(target: Map, *sources: Map, overwrite: bool = False) -> Map:
    """Merge the sources recursively into the target, and return the target.

    Without `overwrite`, only missing and empty values are set.
    """
    for source in sources:
        for key, value in (source or {}).items():
            mine = target.get(key)
            if isinstance(mine, dict) and isinstance(value, dict):
                merge(mine, value, overwrite=overwrite)
            elif overwrite or key not in target or not is_true(mine):
                target[key] = value
    return target


def dig(*arguments: Any) -> Any:
    """Return the value at a path of keys in a map, or a default.

    The arguments are the keys, the default and the map.
    """
    if len(arguments) < 3:
        raise ValueError("dig needs at least three arguments")
    *keys, default, mapping = arguments
    for key in keys:
        if not isinstance(key, str):
            raise ValueError(f"interface conversion: interface {{}} is {_name(key)}, not string")
        if not isinstance(mapping, dict) or isinstance(mapping, StringMap):
            raise ValueError(f"interface conversion: interface {{}} is {_name(mapping)}, not map[string]interface {{}}")
        if key not in mapping:
            return default
        mapping = mapping[key]
    return mapping


def _name(value: Any) -> str:
    return "nil" if value is None else type_name(value)


DICTS: dict[str, Function] = {
    "dict": takes("...any", make),
    "get": takes("map string", lambda mapping, key: (mapping or {}).get(key, "")),
    "set": takes("map string any", assign),
    "unset": takes("map string", unset),
    "hasKey": takes("map string", lambda mapping, key: key in (mapping or {})),
    "pluck": takes(
        "string ...map", lambda key, *maps: [mapping[key] for mapping in maps if mapping and key in mapping]
    ),
    "keys": takes("...map", lambda *maps: StringList(key for mapping in maps for key in mapping or {})),
    "values": takes("map", lambda mapping: list((mapping or {}).values())),
    "pick": takes(
        "map ...string", lambda mapping, *keys: {key: mapping[key] for key in keys if mapping and key in mapping}
    ),
    "omit": takes("map ...string", lambda mapping, *keys: {k: v for k, v in (mapping or {}).items() if k not in keys}),
    "merge": takes("map ...map", merge),
    "mustMerge": takes("map ...map", merge),
    "mergeOverwrite": takes("map ...map", lambda *maps: merge(*maps, overwrite=True)),
    "mustMergeOverwrite": takes("map ...map", lambda *maps: merge(*maps, overwrite=True)),
    "dig": takes("...any", dig),
    "deepCopy": takes("any", copy.deepcopy),
    "mustDeepCopy": takes("any", copy.deepcopy),
}
