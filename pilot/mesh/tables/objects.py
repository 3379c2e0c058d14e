"""Access to objects of any kind, for code that treats all kinds alike."""

from __future__ import annotations

from typing import Any

from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind
from pilot.config.object import Object
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh


def _kind(db: Mesh, group_kind: GroupKind) -> AnyKind:
    kind = db.catalogue.find(group_kind)
    if kind is None:
        raise LookupError(f"no kind {group_kind}")
    return kind


@derived
def object_keys(db: Mesh, kind: GroupKind) -> tuple[Any, ...]:
    """Return the keys of all objects of a kind."""
    return _kind(db, kind).all_keys(db)


def find_object(db: Mesh, kind: GroupKind, key: Any) -> Object[Any] | None:
    """Return an object of a kind, or None if it does not exist. Not memoised."""
    row: Object[Any] | None = _kind(db, kind).get(db, key)
    return row
