"""Namespaces that an object is exported to have to be there."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import Problems, warning
from pilot.mesh.scope.namespaces import known_namespaces
from pilot.mesh.tables.database import Mesh

_NOT_BY_NAME = frozenset(("*", ".", "~"))


def check_export_to(db: Mesh, names: Iterable[str]) -> Problems:
    """Yields a problem for each name that is no namespace of the mesh; paths are those of a list."""
    for index, name in enumerate(names):
        if name not in _NOT_BY_NAME and name not in known_namespaces(db):
            yield warning("namespace-not-found", f"[{index}]", f"there is no namespace {name}")
