"""WorkloadEntries: the WorkloadGroup that they were registered for has to be there."""

from __future__ import annotations

from pilot.config.kinds.istio import WORKLOAD_ENTRY, WORKLOAD_GROUP
from pilot.config.networking.workload_entry import REGISTRATION_GROUP
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import Problem, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, told
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return WORKLOAD_ENTRY.keys(db, "registered", True)


@derived
def workload_entry_problems(db: Mesh, key: RegistryKey) -> tuple[Problem, ...]:
    """Returns the problems of a WorkloadEntry with other objects. Groups of other clusters than the own are not known, nor missed."""
    found = WORKLOAD_ENTRY.get(db, key)
    group = found.annotations.get(REGISTRATION_GROUP) if found is not None else None
    if found is None or not group or key.cluster != db.settings.registry.cluster_id:
        return ()
    if WORKLOAD_GROUP.get(db, ObjectKey(key.namespace, group)) is not None:
        return ()
    path = f"metadata.annotations[{REGISTRATION_GROUP}]"
    return told(found, (warning("group-not-found", path, f"there is no WorkloadGroup {key.namespace}/{group}"),))


WORKLOAD_ENTRIES = Check("WorkloadEntry", _keys, workload_entry_problems)
