"""Checks that the namespaces in exportTo exist."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import Problems, warning
from pilot.mesh.scope.known_namespaces import known_namespaces
from pilot.mesh.tables.database import Mesh

_KEYWORDS = frozenset(("*", ".", "~"))


def check_export_to(db: Mesh, names: Iterable[str]) -> Problems:
    """Yield a problem for each name that is not a namespace in the mesh.

    The path of the problem is the index of the name.
    """
    for index, name in enumerate(names):
        if name not in _KEYWORDS and name not in known_namespaces(db):
            yield warning("namespace-not-found", f"[{index}]", f"namespace {name} not found")
