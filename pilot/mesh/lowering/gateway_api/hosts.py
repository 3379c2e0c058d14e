"""Hosts of what routes of the mesh attach to."""

from __future__ import annotations

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import ObjectKey
from pilot.mesh.tables.database import Mesh


def mesh_hosts(db: Mesh, kind: GroupKind, target: ObjectKey) -> tuple[str, ...]:
    """Returns the hosts of a Service or ServiceEntry. No node of its own."""
    if kind == SERVICE.id:
        return (f"{target.name}.{target.namespace}.svc.{db.settings.registry.domain}",)
    found = SERVICE_ENTRY.get(db, target)
    return found.spec.hosts if found is not None else ()
