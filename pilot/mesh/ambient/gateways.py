"""What stands for other networks: the gateways into them, and one workload a service for all that serve it there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.object import RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib import spiffe
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.listing import declared_workload, entry_ids, pod_ids, service_entry_ids, slice_ids
from pilot.mesh.ambient.networks import TunnelGateway, cluster_network, tunnel_gateways
from pilot.mesh.ambient.services import is_global, service_address
from pilot.mesh.ambient.workloads import told_trust_domain
from pilot.mesh.model.address import AddressKey, ServedService, WorkloadAddress
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.registry.services import kubernetes_key
from pilot.mesh.tables.clusters import service_clusters
from pilot.mesh.tables.database import Mesh

# -- gateways --------------------------------------------------------------------------------------------------------------


@derived
def gateway_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Returns the gateways into other networks."""
    if not db.settings.ambient.enabled:
        return ()
    return tuple(_gateway_id(db, one) for found in tunnel_gateways(db).values() for one in found)


def _gateway_id(db: Mesh, one: TunnelGateway) -> AddressKey:
    return AddressKey("NetworkGateway", db.settings.registry.cluster_id, one.network, one.address, str(one.port))


@derived
def gateway_address(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Returns the workload that a gateway into a network is."""
    found = next((one for one in tunnel_gateways(db).get(at.namespace, ()) if _gateway_id(db, one) == at), None)
    if found is None:
        return None
    return WorkloadAddress(
        uid=at.uid,
        name=at.uid,
        namespace=found.source.namespace,
        addresses=(found.address,) if is_ip(found.address) else (),
        hostname="" if is_ip(found.address) else found.address,
        network=found.network,
        trust_domain=told_trust_domain(db),
        service_account=found.account,
        is_compute=False,
    )


# -- workloads of other networks -------------------------------------------------------------------------------------------


class Remote(NamedTuple):
    """A workload of another network: the services that it serves, its share of load, and its identity."""

    network: str
    services: tuple[str, ...]
    capacity: int
    identity: str


class Remotes(NamedTuple):
    """The workloads that serve one service in one other network."""

    capacity: int = 0
    identities: frozenset[str] = frozenset()


@derived
def _declared_ids(db: Mesh) -> tuple[AddressKey, ...]:
    return (
        (*pod_ids(db), *entry_ids(db), *service_entry_ids(db), *slice_ids(db))
        if db.settings.ambient.multi_network
        else ()
    )


@derived
def _remote(db: Mesh, at: AddressKey) -> Remote | None:
    found = declared_workload(db, at)
    if found is None or not found.services or found.network == cluster_network(db, db.settings.registry.cluster_id):
        return None
    identity = spiffe.identity(service_rules(db).trust_domain, found.namespace, found.service_account)
    return Remote(found.network, tuple(one.service for one in found.services), found.capacity or 1, identity)


_remotes: Gather[AddressKey, [], Remote] = Gather("workloads of other networks", _declared_ids, _remote, hub=True)


@hub
def remote_services(db: Mesh) -> Mapping[str, Mapping[str, Remotes]]:
    """Returns what serves each service in other networks, by `namespace/hostname` and network."""
    out: dict[str, dict[str, Remotes]] = defaultdict(dict)
    for one in _remotes(db).values():
        for name in one.services:
            before = out[name].get(one.network, Remotes())
            out[name][one.network] = Remotes(before.capacity + one.capacity, before.identities | {one.identity})
    return dict(out)


@derived
def remote_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Returns what stands for the workloads of global services in networks that a gateway leads into."""
    return tuple(at for name in remote_services(db) for at in remotes_of(db, name))


@derived
def remotes_of(db: Mesh, name: str) -> tuple[AddressKey, ...]:
    """Returns what stands for the workloads of one service, named `namespace/hostname`."""
    namespace, _, hostname = name.partition("/")
    found = remote_services(db).get(name, {}) if is_global_service(db, ServiceRef(hostname, namespace)) else {}
    ways = ((network, next(iter(tunnel_gateways(db).get(network, ())), None)) for network in found)
    return tuple(
        AddressKey("SplitHorizonWorkload", network, namespace, hostname, _part(way))
        for network, way in ways
        if way is not None
    )


def _part(way: TunnelGateway) -> str:
    return f"{way.source.namespace}/{way.source.name}/{way.address}"


def is_global_service(db: Mesh, ref: ServiceRef) -> bool:
    """Returns whether a service is one with those of its name in other clusters. No node of its own."""
    key = kubernetes_key(ref, db.settings.registry.domain)
    return key is not None and any(is_global(db, RegistryKey(cluster, *key)) for cluster in service_clusters(db))


@derived
def remote_address(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Returns what stands for the workloads of a service in another network."""
    way = next((one for one in tunnel_gateways(db).get(at.cluster, ()) if _part(one) == at.part), None)
    found, service = (
        remote_services(db).get(f"{at.namespace}/{at.name}", {}).get(at.cluster),
        service_address(db, ServiceRef(at.name, at.namespace)),
    )
    if way is None or found is None or service is None:
        return None
    return WorkloadAddress(
        uid=at.uid,
        name=at.uid,
        namespace=at.namespace,
        network=at.cluster,
        gateway=way.location,
        cluster=db.settings.registry.cluster_id,
        trust_domain=told_trust_domain(db),
        tunnels=True,
        services=(ServedService(f"{at.namespace}/{at.name}", tuple((p.number, p.target) for p in service.ports)),),
        capacity=found.capacity,
    )


@derived
def remote_identities(db: Mesh, ref: ServiceRef) -> frozenset[str]:
    """Returns the identities that serve a global service in other networks."""
    found = remote_services(db).get(f"{ref.namespace}/{ref.hostname}", {}) if is_global_service(db, ref) else {}
    return frozenset(identity for one in found.values() for identity in one.identities)
