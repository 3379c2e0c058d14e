"""Functions of maps. https://masterminds.github.io/sprig/dicts.html"""

from __future__ import annotations

import copy
from typing import Any

from gotemplate.function import Function, takes
from gotemplate.printing import to_text
from gotemplate.values import StringList, StringMap, is_true, type_name

Map = dict[str, Any]


def make(*pairs: Any) -> Map:
    """Returns the map of keys and values in turn; a key without a value has ""."""
    found: Map = {to_text(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=False)}
    if len(pairs) % 2:
        found[to_text(pairs[-1])] = ""
    return found


def assign(found: Map | None, key: str, value: Any) -> Map:
    """Sets a key of the map, and returns it."""
    if found is None:
        raise ValueError("assignment to entry in nil map")
    found[key] = value
    return found


def unset(found: Map, key: str) -> Map:
    """Removes a key from the map, and returns it."""
    found.pop(key, None)
    return found


def merge(target: Map, *sources: Map, overwrite: bool = False) -> Map:
    """Adds to the first map what it has not or what is empty there, maps in maps too, and returns it. `overwrite`: what the others
    have comes before."""
    for source in sources:
        for key, value in (source or {}).items():
            mine = target.get(key)
            if isinstance(mine, dict) and isinstance(value, dict):
                merge(mine, value, overwrite=overwrite)
            elif overwrite or key not in target or not is_true(mine):
                target[key] = value
    return target


def dig(*arguments: Any) -> Any:
    """Returns what keys lead to in a map, or a default where one of them is not there: keys, default, map."""
    if len(arguments) < 3:
        raise ValueError("dig needs at least three arguments")
    *keys, default, found = arguments
    for key in keys:
        if not isinstance(key, str):
            raise ValueError(f"interface conversion: interface {{}} is {_name(key)}, not string")
        if not isinstance(found, dict) or isinstance(found, StringMap):
            raise ValueError(f"interface conversion: interface {{}} is {_name(found)}, not map[string]interface {{}}")
        if key not in found:
            return default
        found = found[key]
    return found


def _name(value: Any) -> str:
    return "nil" if value is None else type_name(value)


DICTS: dict[str, Function] = {
    "dict": takes("...any", make),
    "get": takes("map string", lambda found, key: (found or {}).get(key, "")),
    "set": takes("map string any", assign),
    "unset": takes("map string", unset),
    "hasKey": takes("map string", lambda found, key: key in (found or {})),
    "pluck": takes("string ...map", lambda key, *maps: [found[key] for found in maps if found and key in found]),
    "keys": takes("...map", lambda *maps: StringList(key for found in maps for key in found or {})),
    "values": takes("map", lambda found: list((found or {}).values())),
    "pick": takes("map ...string", lambda found, *keys: {key: found[key] for key in keys if found and key in found}),
    "omit": takes("map ...string", lambda found, *keys: {k: v for k, v in (found or {}).items() if k not in keys}),
    "merge": takes("map ...map", merge),
    "mustMerge": takes("map ...map", merge),
    "mergeOverwrite": takes("map ...map", lambda *maps: merge(*maps, overwrite=True)),
    "mustMergeOverwrite": takes("map ...map", lambda *maps: merge(*maps, overwrite=True)),
    "dig": takes("...any", dig),
    "deepCopy": takes("any", copy.deepcopy),
    "mustDeepCopy": takes("any", copy.deepcopy),
}
