"""The workloads that objects declare, in all networks, and the services that these workloads serve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.ambient.endpoints import endpoints_of_entry, endpoints_of_slice
from pilot.mesh.ambient.workloads import entry_address, pod_address
from pilot.mesh.model.address import AddressKey, WorkloadAddress
from pilot.mesh.tables.clusters import is_included
from pilot.mesh.tables.database import Mesh


def declared_workload(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Return the workload that an object declares, or None if the object no longer declares it. Not memoised."""
    if at.kind == "Pod":
        return pod_address(db, at.key)
    if at.kind == "WorkloadEntry":
        return entry_address(db, at.key)
    if at.kind == "ServiceEntry":
        return endpoints_of_entry(db, at.object).get(at)
    return endpoints_of_slice(db, at.key).get(at) if at.kind == "EndpointSlice" else None


# -- all workloads of a kind -------------------------------------------------------------------------------------------


@derived
def pod_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of the Pods in all clusters that ztunnels receive as workloads. Pods that are not running are
    included."""
    return tuple(AddressKey("Pod", *key) for key in POD.all_keys(db) if is_included(db, key.cluster))


@derived
def entry_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of the WorkloadEntries in the local cluster."""
    local = db.settings.registry.cluster_id
    return tuple(AddressKey("WorkloadEntry", *key) for key in WORKLOAD_ENTRY.all_keys(db) if key.cluster == local)


@derived
def _entries(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def _ids_of_entry(db: Mesh, key: ObjectKey) -> tuple[AddressKey, ...] | None:
    return tuple(endpoints_of_entry(db, key)) or None


_by_entry: Gather[ObjectKey, [], tuple[AddressKey, ...]] = Gather(
    "addresses of ServiceEntries", _entries, _ids_of_entry, hub=True
)


@derived
def service_entry_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of the endpoints of all ServiceEntries."""
    return tuple(at for ids in _by_entry(db).values() for at in ids)


@derived
def _slices(db: Mesh) -> tuple[RegistryKey, ...]:
    return tuple(key for key in ENDPOINT_SLICE.all_keys(db) if is_included(db, key.cluster))


@derived
def _ids_of_slice(db: Mesh, key: RegistryKey) -> tuple[AddressKey, ...] | None:
    return tuple(endpoints_of_slice(db, key)) or None


_by_slice: Gather[RegistryKey, [], tuple[AddressKey, ...]] = Gather(
    "addresses of EndpointSlices", _slices, _ids_of_slice, hub=True
)


@derived
def slice_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of the EndpointSlice endpoints that are not Pods."""
    return tuple(at for ids in _by_slice(db).values() for at in ids)


# -- workloads of services ---------------------------------------------------------------------------------------------


@derived
def _ids_in(db: Mesh, namespace: str) -> tuple[AddressKey, ...]:
    ids = [AddressKey("Pod", *key) for key in POD.keys(db, "namespace", namespace)]
    ids += [AddressKey("WorkloadEntry", *key) for key in WORKLOAD_ENTRY.keys(db, "namespace", namespace)]
    for key in SERVICE_ENTRY.keys(db, "namespace", namespace):
        ids += endpoints_of_entry(db, key)
    for slice_key in ENDPOINT_SLICE.keys(db, "namespace", namespace):
        ids += endpoints_of_slice(db, slice_key)
    return tuple(ids)


@derived
def _services_of(db: Mesh, at: AddressKey, _: str) -> tuple[str, ...] | None:
    workload = declared_workload(db, at)
    return tuple(one.service for one in workload.services) or None if workload is not None else None


_services_in: Gather[AddressKey, [str], tuple[str, ...]] = Gather(
    "services of workloads", _ids_in, _services_of, hub=True
)


@hub
def workloads_of_services(db: Mesh, namespace: str) -> Mapping[str, tuple[AddressKey, ...]]:
    """Return the workloads of each service in a namespace, keyed by `namespace/hostname`."""
    out: dict[str, list[AddressKey]] = defaultdict(list)
    for at, names in _services_in(db, namespace).items():
        for name in names:
            out[name].append(at)
    return {name: tuple(ids) for name, ids in out.items()}
