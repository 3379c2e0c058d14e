"""Checks that the WorkloadGroups from which WorkloadEntries were registered exist."""

from __future__ import annotations

from pilot.config.kinds.istio import WORKLOAD_ENTRY, WORKLOAD_GROUP
from pilot.config.networking.workload_entry import REGISTRATION_GROUP
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import Problem, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return WORKLOAD_ENTRY.keys(db, "registered", True)


@derived
def workload_entry_problems(db: Mesh, key: RegistryKey) -> tuple[Problem, ...]:
    """Return the problems between a WorkloadEntry and other objects.

    WorkloadGroups in remote clusters are unknown, so WorkloadEntries in remote clusters are not checked.
    """
    entry = WORKLOAD_ENTRY.get(db, key)
    group = entry.annotations.get(REGISTRATION_GROUP) if entry is not None else None
    if entry is None or not group or key.cluster != db.settings.registry.cluster_id:
        return ()
    if WORKLOAD_GROUP.get(db, ObjectKey(key.namespace, group)) is not None:
        return ()
    path = f"metadata.annotations[{REGISTRATION_GROUP}]"
    return attribute(entry, (warning("group-not-found", path, f"WorkloadGroup {key.namespace}/{group} not found"),))


WORKLOAD_ENTRIES = Check("WorkloadEntry", _keys, workload_entry_problems)
