"""All that ztunnels are told of, and what they may ask for by name.

A ztunnel that asks for nothing is told of everything. One that asks names a workload by its uid or by `network/IP`, or a service by
`namespace/hostname` or `network/IP`: with a service come the workloads that serve it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.object import RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.clusters import is_told
from pilot.mesh.ambient.endpoints import endpoints_of_entry, endpoints_of_slice
from pilot.mesh.ambient.gateways import gateway_address, remote_address, remotes_of
from pilot.mesh.ambient.listing import declared_workload, workloads_of_services
from pilot.mesh.ambient.networks import cluster_network
from pilot.mesh.ambient.services import service_address
from pilot.mesh.model.address import AddressKey, WorkloadAddress, parse_uid
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service_refs
from pilot.mesh.tables.database import Mesh


def find_workload(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Returns a workload as ztunnels are told of it, None where they are not. Those of other networks are told of by what stands for them, where
    the mesh crosses networks. No node of its own."""
    if at.kind == "NetworkGateway":
        return gateway_address(db, at)
    if at.kind == "SplitHorizonWorkload":
        return remote_address(db, at)
    found = declared_workload(db, at)
    if found is None or not db.settings.ambient.multi_network:
        return found
    return found if found.network == cluster_network(db, db.settings.registry.cluster_id) else None


# -- everything ------------------------------------------------------------------------------------------------------------


@derived
def service_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Returns every service, oldest first; ztunnels may not be told of some of them."""
    return tuple(service_id(ref) for ref in service_refs(db))


def service_id(ref: ServiceRef) -> AddressKey:
    return AddressKey("Service", "", ref.namespace, ref.hostname)


# -- by name ---------------------------------------------------------------------------------------------------------------


@derived
def asked(db: Mesh, name: str) -> tuple[AddressKey, ...]:
    """Returns what a name leads to; () for nothing."""
    at = parse_uid(name)
    if at is not None and find_workload(db, at) is not None:
        return (at,)
    place, _, rest = name.partition("/")
    if is_ip(rest):
        found = tuple(_workloads_at(db, place, rest))
        ref = _services_by_address(db).get(name) if not found else None
    else:
        found, ref = (), ServiceRef(rest, place)
    if ref is None or service_address(db, ref) is None:
        return found
    named = f"{ref.namespace}/{ref.hostname}"
    workloads = (
        at for at in workloads_of_services(db, ref.namespace).get(named, ()) if find_workload(db, at) is not None
    )
    return service_id(ref), *workloads, *remotes_of(db, named)


@derived
def reached(db: Mesh, names: frozenset[str], cluster: str, node: str) -> tuple[AddressKey, ...]:
    """Returns what a ztunnel gets that asks for names: what these lead to, and what runs on its own node."""
    found = {at: None for name in sorted(names) for at in asked(db, name)}
    if node:
        found |= dict.fromkeys(AddressKey("Pod", *key) for key in _pods_by_node(db).get((cluster, node), ()))
    return tuple(found)


def _workloads_at(db: Mesh, network: str, ip: str) -> Iterator[AddressKey]:
    """Yields the workloads that have an IP address in a network."""
    ids = [AddressKey("Pod", *key) for key in POD.keys(db, "ip", ip)]
    ids += [AddressKey("WorkloadEntry", *key) for key in WORKLOAD_ENTRY.keys(db, "address", ip)]
    for key in SERVICE_ENTRY.keys(db, "address", ip):
        ids += endpoints_of_entry(db, key)
    for slice_key in ENDPOINT_SLICE.keys(db, "address", ip):
        ids += endpoints_of_slice(db, slice_key)
    for at in ids:
        found = find_workload(db, at)
        if found is not None and found.network == network and ip in found.addresses:
            yield at


@derived
def _virtual_addresses(db: Mesh, ref: ServiceRef) -> tuple[str, ...] | None:
    found = service_address(db, ref)
    return tuple(map(str, found.addresses)) or None if found is not None else None


_addresses: Gather[ServiceRef, [], tuple[str, ...]] = Gather(
    "addresses of services", service_refs, _virtual_addresses, hub=True
)


@hub
def _services_by_address(db: Mesh) -> Mapping[str, ServiceRef]:
    out: dict[str, ServiceRef] = {}
    for ref, addresses in _addresses(db).items():
        for text in addresses:
            out.setdefault(text, ref)
    return out


@derived
def _node_of(db: Mesh, key: RegistryKey) -> tuple[str, str] | None:
    row = POD.get(db, key) if is_told(db, key.cluster) else None
    return (key.cluster, row.spec.node_name) if row is not None and row.spec.node_name else None


@derived
def _every_pod(db: Mesh) -> tuple[RegistryKey, ...]:
    return POD.all_keys(db)


_nodes: Gather[RegistryKey, [], tuple[str, str]] = Gather("nodes of pods", _every_pod, _node_of, hub=True)


@hub
def _pods_by_node(db: Mesh) -> Mapping[tuple[str, str], tuple[RegistryKey, ...]]:
    out: dict[tuple[str, str], list[RegistryKey]] = defaultdict(list)
    for key, place in _nodes(db).items():
        out[place].append(key)
    return {place: tuple(found) for place, found in out.items()}
