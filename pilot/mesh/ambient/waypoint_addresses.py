"""The addresses of the workloads that use a waypoint: Pods, WorkloadEntries and ServiceEntry endpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.attachments import pods_of_waypoint, subject_of, workload_attachment
from pilot.mesh.registry.pods import pod_workload
from pilot.mesh.tables.database import Mesh

_Uses = tuple[tuple[ObjectKey, str], ...]


@derived
def _own_entries(db: Mesh) -> tuple[RegistryKey, ...]:
    return tuple(key for key in WORKLOAD_ENTRY.all_keys(db) if key.cluster == db.settings.registry.cluster_id)


@derived
def _of_entry(db: Mesh, key: RegistryKey) -> _Uses | None:
    row = WORKLOAD_ENTRY.get(db, key)
    return (
        _at(db, row.namespace, {**row.spec.labels, **row.labels}, row.spec.address) or None if row is not None else None
    )


@derived
def _service_entries(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def _of_service_entry(db: Mesh, key: ObjectKey) -> _Uses | None:
    row = SERVICE_ENTRY.get(db, key)
    endpoints = row.spec.endpoints if row is not None else ()
    return tuple(use for e in endpoints for use in _at(db, key.namespace, e.labels, e.address)) or None


def _at(db: Mesh, namespace: str, labels: Mapping[str, str], address: str) -> _Uses:
    used = workload_attachment(db, subject_of(namespace, labels)).waypoint if is_ip(address) else None
    return ((used, address),) if used is not None else ()


_entries: Gather[RegistryKey, [], _Uses] = Gather("WorkloadEntries behind waypoints", _own_entries, _of_entry, hub=True)
_endpoints: Gather[ObjectKey, [], _Uses] = Gather(
    "ServiceEntries behind waypoints", _service_entries, _of_service_entry, hub=True
)


@hub
def _declared(db: Mesh) -> Mapping[ObjectKey, frozenset[str]]:
    out: dict[ObjectKey, set[str]] = defaultdict(set)
    for part in (*_entries(db).values(), *_endpoints(db).values()):
        for key, address in part:
            out[key].add(address)
    return {key: frozenset(addresses) for key, addresses in out.items()}


@derived
def addresses_behind(db: Mesh, waypoint: ObjectKey) -> tuple[str, ...]:
    """Return the addresses of the workloads that use a waypoint, sorted."""
    pods = (pod_workload(db, pod) for pod in pods_of_waypoint(db, waypoint))
    addresses = {address for pod in pods if pod is not None for address in pod.addresses if address}
    return tuple(sorted(addresses | _declared(db).get(waypoint, frozenset())))
