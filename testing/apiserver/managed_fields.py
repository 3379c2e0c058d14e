"""Server-side apply: the fields that each manager owns.

Fields are paths: ("f", name) is a field, ("k", key) the item of a list by its key, ("v", value) an item of a set.
https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from testing.apiserver.list_merging import is_set, item_keys, key_of
from testing.apiserver.status_error import StatusError

Path = tuple[tuple[str, Any], ...]
Fields = frozenset[Path]
_IDENTITY = frozenset(
    {"name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "managedFields", "selfLink"}
)


class Manager(NamedTuple):
    """A field manager: its name, its operation (Apply or Update) and the subresource that it writes."""

    name: str
    operation: str
    subresource: str = ""


Managers = dict[Manager, Fields]


def fields_of(plain: Mapping[str, Any], built_in: bool) -> Fields:
    """Return the fields that an object sets, without those that identify it."""
    metadata = {k: v for k, v in (plain.get("metadata") or {}).items() if k not in _IDENTITY}
    rest = {k: v for k, v in plain.items() if k not in ("apiVersion", "kind", "metadata")}
    return frozenset(
        path for path in _leaves({**({"metadata": metadata} if metadata else {}), **rest}, (), built_in) if path
    )


def _leaves(value: Any, path: Path, built_in: bool) -> Iterable[Path]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from (
                _list_leaves(name, inner, (*path, ("f", name)), built_in)
                if isinstance(inner, list)
                else _leaves(inner, (*path, ("f", name)), built_in)
            )
    else:
        yield path


def _list_leaves(field: str, items: list[Any], path: Path, built_in: bool) -> Iterable[Path]:
    names = item_keys(field, items, built_in)
    if names:
        for item in items:
            item_path = (*path, ("k", key_of(item, names)))
            yield item_path
            yield from _leaves(item, item_path, built_in)
    elif is_set(field):
        yield from ((*path, ("v", item)) for item in items)
    else:
        yield path


def value_at(plain: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    for kind, part in path:
        if kind == "f":
            plain = plain.get(part) if isinstance(plain, dict) else None
        elif kind == "v":
            plain = part if part in (plain or []) else None
        else:
            names = [name for name, _ in part]
            plain = next((item for item in plain or [] if key_of(item, names) == part), None)
        if plain is None:
            return None
    return plain


def merge(live: Any, config: Any, built_in: bool, field: str = "") -> Any:
    """Return the live value merged with an applied configuration."""
    if isinstance(live, dict) and isinstance(config, dict):
        merged = {name: merge(live.get(name), value, built_in, name) for name, value in config.items()}
        return {**live, **merged}
    if isinstance(live, list) and isinstance(config, list):
        names = item_keys(field, [*live, *config], built_in)
        if names:
            old, new = {key_of(item, names): item for item in live}, {key_of(item, names): item for item in config}
            return [merge(old.get(key), new[key], built_in) if key in new else old[key] for key in _ordered(old, new)]
        if is_set(field):
            return [*live, *(item for item in config if item not in live)]
    return copy.deepcopy(config)


def _ordered(old: Iterable[Any], new: Collection[Any]) -> list[Any]:
    """Return the keys of both lists: the new ones in their order, each of the others before the key it preceded."""
    pending, keys = deque(new), dict[Any, None]()
    for key in old:
        while key in new and key not in keys:
            keys[pending.popleft()] = None
        keys[key] = None
    return list(dict.fromkeys((*keys, *pending)))


def remove(plain: dict[str, Any], path: Path) -> None:
    """Remove the value at a path, if it exists."""
    *parents, (kind, part) = path
    holder = value_at(plain, tuple(parents)) if parents else plain
    if kind == "f" and isinstance(holder, dict):
        holder.pop(part, None)
    elif isinstance(holder, list) and kind == "v" and part in holder:
        holder.remove(part)
    elif isinstance(holder, list) and kind == "k":
        names = [name for name, _ in part]
        holder[:] = [item for item in holder if key_of(item, names) != part]


def apply(
    live: dict[str, Any] | None, config: dict[str, Any], manager: Manager, force: bool, built_in: bool
) -> dict[str, Any]:
    """Return the object after a manager has applied a configuration. Raise StatusError with 409 on conflicts."""
    managers = read_managers((live or {}).get("metadata", {}).get("managedFields") or ())
    applied = fields_of(config, built_in)
    conflicts = {
        other: paths
        for other, fields in managers.items()
        if other != manager
        and (paths := frozenset(p for p in fields & applied if value_at(live, p) != value_at(config, p)))
    }
    if conflicts and not force:
        raise _conflict(conflicts)
    merged: dict[str, Any] = merge(live or {}, config, built_in)
    others = frozenset().union(*(fields for other, fields in managers.items() if other != manager))
    owned = {path[:length] for path in applied | others for length in range(1, len(path) + 1)}
    for path in sorted(managers.get(manager, frozenset()) - owned, key=len):  # an item before its key fields
        remove(merged, path)
    remaining = {
        other: fields - conflicts.get(other, frozenset()) for other, fields in managers.items() if other != manager
    }
    merged["metadata"]["managedFields"] = write_managers({**remaining, manager: applied}, config["apiVersion"])
    return merged


def updated(live: Mapping[str, Any] | None, new: dict[str, Any], manager: Manager, built_in: bool) -> dict[str, Any]:
    """Return the object after an update, with the fields that changed owned by the manager."""
    managers = read_managers((live or {}).get("metadata", {}).get("managedFields") or ())
    fields_set = fields_of(new, built_in)
    changed = frozenset(path for path in fields_set if live is None or value_at(live, path) != value_at(new, path))
    owned = {
        other: (fields & fields_set) - (changed if other != manager else frozenset())
        for other, fields in managers.items()
    }
    owned[manager] = owned.get(manager, frozenset()) | changed
    new["metadata"]["managedFields"] = write_managers(
        {other: fields for other, fields in owned.items() if fields}, new["apiVersion"]
    )
    return new


def _conflict(conflicts: Mapping[Manager, Fields]) -> StatusError:
    paths_by_manager = [(manager, path) for manager, paths in conflicts.items() for path in sorted(paths, key=str)]
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{m.name}"',
            "field": "".join(f".{part}" for kind, part in path if kind == "f"),
        }
        for m, path in paths_by_manager
    ]
    names = ", ".join(f'"{manager.name}"' for manager in conflicts)
    return StatusError(
        409, f"Apply failed with {len(causes)} conflict(s): conflicts with {names}", details={"causes": causes}
    )


# -- metadata.managedFields ----------------------------------------------------------------------------------------------


def write_managers(managers: Mapping[Manager, Fields], api_version: str) -> list[dict[str, Any]]:
    """Return the managers as entries of `metadata.managedFields`."""
    return [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(fields),
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, fields in sorted(managers.items())
    ]


def read_managers(entries: Iterable[Mapping[str, Any]]) -> Managers:
    """Return the managers of the entries of `metadata.managedFields`."""
    return {
        Manager(entry["manager"], entry["operation"], entry.get("subresource", "")): frozenset(
            _paths(entry.get("fieldsV1") or {}, ())
        )
        for entry in entries
    }


def _tree(fields: Fields) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(fields, key=str):
        node = tree
        for kind, part in path:
            node = node.setdefault(
                f"{kind}:{part if kind == 'f' else json.dumps(dict(part) if kind == 'k' else part)}", {}
            )
        node["."] = {}
    return {k: _without_dots(v) for k, v in tree.items()}


def _without_dots(node: dict[str, Any]) -> dict[str, Any]:
    """Return the tree with empty leaves; a dot stays at a node that is a field and has fields in it."""
    return {} if set(node) == {"."} else {k: _without_dots(v) if k != "." else {} for k, v in node.items()}


def _paths(tree: Mapping[str, Any], path: Path) -> Iterable[Path]:
    if not tree and path:
        yield path
    for name, inner in tree.items():
        if name == ".":
            yield path
            continue
        kind, _, text = name.partition(":")
        part = text if kind == "f" else tuple(json.loads(text).items()) if kind == "k" else json.loads(text)
        yield from _paths(inner, (*path, (kind, part)))
