"""Every input table, declared once. Derived functions take a `Mesh` and read these tables, nothing else."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.derive import Database, Table
from pilot.model.config.object import Object, ObjectKey


def _namespace(key: ObjectKey, _: Any) -> Iterable[str]:
    return (key.namespace,)


class Mesh(Database):
    """The tables. Rows of user kinds are `Object[Spec]` by `ObjectKey`; singletons (mesh config …) by a string."""
