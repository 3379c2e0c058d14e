"""Workloads and services as resources: all of them, and those that a ztunnel asks for by name."""

from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.envoy.resource import Resource
from pilot.envoy.ztunnel.address_messages import build_service, build_workload
from pilot.lib.xds_types import ADDRESS, WORKLOAD
from pilot.mesh.ambient.addresses import find_workload, reached, service_ids
from pilot.mesh.ambient.gateways import gateway_ids, remote_identities, remote_ids
from pilot.mesh.ambient.listing import entry_ids, pod_ids, service_entry_ids, slice_ids
from pilot.mesh.ambient.services import service_address
from pilot.mesh.model.address import AddressKey
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.tables.database import Mesh
from protos.istio import workload_pb2


@derived
def address(db: Mesh, at: AddressKey) -> Resource | None:
    """Returns a workload or a service."""
    if at.kind == "Service":
        ref = ServiceRef(at.name, at.namespace)
        service = service_address(db, ref)
        if service is None:
            return None
        identities = remote_identities(db, ref) if db.settings.ambient.multi_network else ()
        message = workload_pb2.Address(service=build_service(service, identities))
        return Resource.versioned(ADDRESS, message, at.uid, tuple(map(str, service.addresses)))
    workload = find_workload(db, at)
    if workload is None:
        return None
    return Resource.versioned(
        ADDRESS, workload_pb2.Address(workload=build_workload(workload)), at.uid, workload.aliases
    )


@derived
def workload(db: Mesh, at: AddressKey) -> Resource | None:
    """Returns a workload in the type that is for workloads alone."""
    found = find_workload(db, at) if at.kind != "Service" else None
    return Resource.versioned(WORKLOAD, build_workload(found), at.uid, found.aliases) if found is not None else None


_LISTS = (pod_ids, entry_ids, service_entry_ids, slice_ids, gateway_ids, remote_ids)
ADDRESSES: tuple[Gather[AddressKey, [], Resource], ...] = tuple(
    Gather(f"{ids.__name__} told", ids, address) for ids in (*_LISTS, service_ids)
)
"""Everything that there is, by sort, so that one that comes or goes leaves the lists of others alone."""
WORKLOADS: tuple[Gather[AddressKey, [], Resource], ...] = tuple(
    Gather(f"{ids.__name__} told as workloads", ids, workload) for ids in _LISTS
)


def _no_more(*_: object) -> tuple[()]:
    return ()


requested_addresses: Gather[AddressKey, [frozenset[str], str, str], Resource] = Gather(
    "asked addresses", reached, address, passed=_no_more
)
"""What names lead to, for a ztunnel of a cluster's node."""
requested_workloads: Gather[AddressKey, [frozenset[str], str, str], Resource] = Gather(
    "asked workloads", reached, workload, passed=_no_more
)
