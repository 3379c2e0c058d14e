"""Workloads and services as resources: all of them, or only those that a ztunnel requests by name."""

from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.envoy.resource import Resource
from pilot.envoy.ztunnel.address_messages import build_service, build_workload
from pilot.lib.xds_types import ADDRESS, WORKLOAD
from pilot.mesh.ambient.addresses import find_workload, service_ids, subscribed_addresses
from pilot.mesh.ambient.declared_workloads import entry_ids, pod_ids, service_entry_ids, slice_ids
from pilot.mesh.ambient.remote_networks import gateway_ids, remote_identities, remote_ids
from pilot.mesh.ambient.services import service_address
from pilot.mesh.model.address import AddressKey
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.tables.database import Mesh
from protos.istio import workload_pb2


@derived
def address(db: Mesh, key: AddressKey) -> Resource | None:
    """Return the resource of a workload or service."""
    if key.kind == "Service":
        ref = ServiceRef(key.name, key.namespace)
        service = service_address(db, ref)
        if service is None:
            return None
        identities = remote_identities(db, ref) if db.settings.ambient.multi_network else ()
        message = workload_pb2.Address(service=build_service(service, identities))
        return Resource.versioned(ADDRESS, message, key.uid, tuple(map(str, service.addresses)))
    workload = find_workload(db, key)
    if workload is None:
        return None
    return Resource.versioned(
        ADDRESS, workload_pb2.Address(workload=build_workload(workload)), key.uid, workload.aliases
    )


@derived
def workload(db: Mesh, key: AddressKey) -> Resource | None:
    """Return the resource of a workload, in the type for clients that request only workloads."""
    row = find_workload(db, key) if key.kind != "Service" else None
    return Resource.versioned(WORKLOAD, build_workload(row), key.uid, row.aliases) if row is not None else None


_LISTS = (pod_ids, entry_ids, service_entry_ids, slice_ids, gateway_ids, remote_ids)
ADDRESSES: tuple[Gather[AddressKey, [], Resource], ...] = tuple(
    Gather(f"{ids.__name__} as addresses", ids, address) for ids in (*_LISTS, service_ids)
)
"""All addresses, grouped by source, so that a change in one source does not affect the lists of other sources."""
WORKLOADS: tuple[Gather[AddressKey, [], Resource], ...] = tuple(
    Gather(f"{ids.__name__} as workloads", ids, workload) for ids in _LISTS
)
"""All workloads, grouped by source."""


def _no_args(*_: object) -> tuple[()]:
    return ()


requested_addresses: Gather[AddressKey, [frozenset[str], str, str], Resource] = Gather(
    "requested_addresses", subscribed_addresses, address, passed=_no_args
)
"""The addresses to which the requested names resolve, for a ztunnel on a node of a cluster."""
requested_workloads: Gather[AddressKey, [frozenset[str], str, str], Resource] = Gather(
    "requested_workloads", subscribed_addresses, workload, passed=_no_args
)
"""The workloads to which the requested names resolve, for a ztunnel on a node of a cluster."""
