"""The objects of any kind, for those who read all kinds alike."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from pilot.config.object import Object
from pilot.derive import Collection, derived
from pilot.mesh.tables.database import Mesh


@functools.cache
def _view(table: str) -> Collection[Any, Object[Any]]:
    """Returns the one reader of a kind, which has the name of its table."""
    found: Collection[Any, Object[Any]] = getattr(importlib.import_module(f"pilot.mesh.kinds.{table}"), table)
    return found


@derived
def object_keys(db: Mesh, table: str) -> tuple[Any, ...]:
    """Returns the keys of all objects of a kind, by the name of its table."""
    return _view(table).all_keys(db)


def find_object(db: Mesh, table: str, key: Any) -> Object[Any] | None:
    """Returns an object of a kind, None where there is none. No node of its own."""
    return _view(table).get(db, key)
