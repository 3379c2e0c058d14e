"""The addresses that ztunnels receive. A ztunnel receives all addresses, or only the ones that it subscribes to by
name.

A name is a workload's uid, a `network/IP` or a service's `namespace/hostname`. A ztunnel that subscribes to a service
also receives the workloads that serve it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.object import RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.declared_workloads import declared_workload, workloads_of_services
from pilot.mesh.ambient.endpoints import endpoints_of_entry, endpoints_of_slice
from pilot.mesh.ambient.remote_networks import gateway_address, remote_address, remotes_of
from pilot.mesh.ambient.services import service_address
from pilot.mesh.model.address import AddressKey, WorkloadAddress, parse_uid
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.registry.services import service_refs
from pilot.mesh.tables.clusters import is_included
from pilot.mesh.tables.database import Mesh


def find_workload(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Return the workload with a key, or None if ztunnels do not receive it. Not memoised.

    In a multi-network mesh, split-horizon workloads represent the workloads in other networks.
    """
    if at.kind == "NetworkGateway":
        return gateway_address(db, at)
    if at.kind == "SplitHorizonWorkload":
        return remote_address(db, at)
    workload = declared_workload(db, at)
    if workload is None or not db.settings.ambient.multi_network:
        return workload
    return workload if workload.network == cluster_network(db, db.settings.registry.cluster_id) else None


# -- all addresses -----------------------------------------------------------------------------------------------------


@derived
def service_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of all services, oldest first, including those that ztunnels do not receive."""
    return tuple(service_id(ref) for ref in service_refs(db))


def service_id(ref: ServiceRef) -> AddressKey:
    return AddressKey("Service", "", ref.namespace, ref.hostname)


# -- addresses by name -------------------------------------------------------------------------------------------------


@derived
def resolve_name(db: Mesh, name: str) -> tuple[AddressKey, ...]:
    """Return the keys of the addresses that a name refers to."""
    at = parse_uid(name)
    if at is not None and find_workload(db, at) is not None:
        return (at,)
    place, _, rest = name.partition("/")
    if is_ip(rest):
        at_ip = tuple(_workloads_at(db, place, rest))
        ref = _services_by_address(db).get(name) if not at_ip else None
    else:
        at_ip, ref = (), ServiceRef(rest, place)
    if ref is None or service_address(db, ref) is None:
        return at_ip
    full_name = f"{ref.namespace}/{ref.hostname}"
    workloads = (
        at for at in workloads_of_services(db, ref.namespace).get(full_name, ()) if find_workload(db, at) is not None
    )
    return service_id(ref), *workloads, *remotes_of(db, full_name)


@derived
def subscribed_addresses(db: Mesh, names: frozenset[str], cluster: str, node: str) -> tuple[AddressKey, ...]:
    """Return the keys of the addresses for a ztunnel that subscribes to `names`, including the Pods on its node."""
    addresses = {at: None for name in sorted(names) for at in resolve_name(db, name)}
    if node:
        addresses |= dict.fromkeys(AddressKey("Pod", *key) for key in _pods_by_node(db).get((cluster, node), ()))
    return tuple(addresses)


def _workloads_at(db: Mesh, network: str, ip: str) -> Iterator[AddressKey]:
    """Yield the keys of the workloads that have an IP address in a network."""
    ids = [AddressKey("Pod", *key) for key in POD.keys(db, "ip", ip)]
    ids += [AddressKey("WorkloadEntry", *key) for key in WORKLOAD_ENTRY.keys(db, "address", ip)]
    for key in SERVICE_ENTRY.keys(db, "address", ip):
        ids += endpoints_of_entry(db, key)
    for slice_key in ENDPOINT_SLICE.keys(db, "address", ip):
        ids += endpoints_of_slice(db, slice_key)
    for at in ids:
        workload = find_workload(db, at)
        if workload is not None and workload.network == network and ip in workload.addresses:
            yield at


@derived
def _virtual_addresses(db: Mesh, ref: ServiceRef) -> tuple[str, ...] | None:
    address = service_address(db, ref)
    return tuple(map(str, address.addresses)) or None if address is not None else None


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
    row = POD.get(db, key) if is_included(db, key.cluster) else None
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
    return {place: tuple(keys) for place, keys in out.items()}
