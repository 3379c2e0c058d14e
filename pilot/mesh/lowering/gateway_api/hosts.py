"""Hosts of what routes of the mesh attach to."""

from __future__ import annotations

from pilot.config.group_kind import GroupKind
from pilot.config.object import ObjectKey
from pilot.mesh.kinds.service_entries import service_entries
from pilot.mesh.lowering.gateway_api.parents import SERVICE
from pilot.mesh.tables.database import Mesh


def mesh_hosts(db: Mesh, kind: GroupKind, target: ObjectKey) -> tuple[str, ...]:
    """Returns the hosts of a Service or ServiceEntry. No node of its own."""
    if kind == SERVICE:
        return (f"{target.name}.{target.namespace}.svc.{db.settings.registry.domain}",)
    found = service_entries.get(db, target)
    return found.spec.hosts if found is not None else ()
