"""Hosts of Services and ServiceEntries that are parents of mesh routes."""

from __future__ import annotations

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import ObjectKey
from pilot.mesh.tables.database import Mesh


def mesh_hosts(db: Mesh, kind: GroupKind, target: ObjectKey) -> tuple[str, ...]:
    """Return the hosts of a Service or ServiceEntry. Not memoised."""
    if kind == SERVICE.id:
        return (f"{target.name}.{target.namespace}.svc.{db.settings.registry.domain}",)
    entry = SERVICE_ENTRY.get(db, target)
    return entry.spec.hosts if entry is not None else ()
