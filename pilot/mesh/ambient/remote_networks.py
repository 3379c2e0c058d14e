"""Addresses that represent other networks: their gateways, and a split-horizon workload for each service in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.object import RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib import spiffe
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.declared_workloads import declared_workload, entry_ids, pod_ids, service_entry_ids, slice_ids
from pilot.mesh.ambient.services import is_global, service_address
from pilot.mesh.ambient.tunnel_gateways import TunnelGateway, tunnel_gateways
from pilot.mesh.ambient.workloads import workload_trust_domain
from pilot.mesh.model.address import AddressKey, ServedService, WorkloadAddress
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.registry.services import kubernetes_key
from pilot.mesh.tables.clusters import service_clusters
from pilot.mesh.tables.database import Mesh

# -- gateways ----------------------------------------------------------------------------------------------------------


@derived
def gateway_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of the gateways through which HBONE traffic enters other networks."""
    if not db.settings.ambient.enabled:
        return ()
    return tuple(_gateway_id(db, one) for gateways in tunnel_gateways(db).values() for one in gateways)


def _gateway_id(db: Mesh, one: TunnelGateway) -> AddressKey:
    return AddressKey("NetworkGateway", db.settings.registry.cluster_id, one.network, one.address, str(one.port))


@derived
def gateway_address(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Return the workload that represents a gateway through which HBONE traffic enters another network."""
    gateway = next((one for one in tunnel_gateways(db).get(at.namespace, ()) if _gateway_id(db, one) == at), None)
    if gateway is None:
        return None
    return WorkloadAddress(
        uid=at.uid,
        name=at.uid,
        namespace=gateway.source.namespace,
        addresses=(gateway.address,) if is_ip(gateway.address) else (),
        hostname="" if is_ip(gateway.address) else gateway.address,
        network=gateway.network,
        trust_domain=workload_trust_domain(db),
        service_account=gateway.account,
        is_compute=False,
    )


# -- workloads in other networks ---------------------------------------------------------------------------------------


class Remote(NamedTuple):
    """A workload in another network: the services that it serves, its capacity and its identity."""

    network: str
    services: tuple[str, ...]
    capacity: int
    identity: str


class Remotes(NamedTuple):
    """The workloads of a service in another network: their total capacity and their identities."""

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
    workload = declared_workload(db, at)
    local = cluster_network(db, db.settings.registry.cluster_id)
    if workload is None or not workload.services or workload.network == local:
        return None
    identity = spiffe.identity(service_rules(db).trust_domain, workload.namespace, workload.service_account)
    return Remote(workload.network, tuple(one.service for one in workload.services), workload.capacity or 1, identity)


_remotes: Gather[AddressKey, [], Remote] = Gather("workloads of other networks", _declared_ids, _remote, hub=True)


@hub
def remote_services(db: Mesh) -> Mapping[str, Mapping[str, Remotes]]:
    """Return the workloads in other networks, keyed by service (`namespace/hostname`) and then by network."""
    out: dict[str, dict[str, Remotes]] = defaultdict(dict)
    for one in _remotes(db).values():
        for name in one.services:
            before = out[name].get(one.network, Remotes())
            out[name][one.network] = Remotes(before.capacity + one.capacity, before.identities | {one.identity})
    return dict(out)


@derived
def remote_ids(db: Mesh) -> tuple[AddressKey, ...]:
    """Return the keys of the split-horizon workloads of all global services.

    Each service has one in every other network that has a gateway.
    """
    return tuple(at for name in remote_services(db) for at in remotes_of(db, name))


@derived
def remotes_of(db: Mesh, name: str) -> tuple[AddressKey, ...]:
    """Return the keys of the split-horizon workloads of a service. `name` is the service's `namespace/hostname`."""
    namespace, _, hostname = name.partition("/")
    networks = remote_services(db).get(name, {}) if is_global_service(db, ServiceRef(hostname, namespace)) else {}
    gateways = ((network, next(iter(tunnel_gateways(db).get(network, ())), None)) for network in networks)
    return tuple(
        AddressKey("SplitHorizonWorkload", network, namespace, hostname, _part(gateway))
        for network, gateway in gateways
        if gateway is not None
    )


def _part(gateway: TunnelGateway) -> str:
    return f"{gateway.source.namespace}/{gateway.source.name}/{gateway.address}"


def is_global_service(db: Mesh, ref: ServiceRef) -> bool:
    """Return whether a service is global in at least one cluster. Not memoised."""
    key = kubernetes_key(ref, db.settings.registry.domain)
    return key is not None and any(is_global(db, RegistryKey(cluster, *key)) for cluster in service_clusters(db))


@derived
def remote_address(db: Mesh, at: AddressKey) -> WorkloadAddress | None:
    """Return the split-horizon workload that represents a service's workloads in another network."""
    gateway = next((one for one in tunnel_gateways(db).get(at.cluster, ()) if _part(one) == at.part), None)
    remotes = remote_services(db).get(f"{at.namespace}/{at.name}", {}).get(at.cluster)
    service = service_address(db, ServiceRef(at.name, at.namespace))
    if gateway is None or remotes is None or service is None:
        return None
    return WorkloadAddress(
        uid=at.uid,
        name=at.uid,
        namespace=at.namespace,
        network=at.cluster,
        gateway=gateway.location,
        cluster=db.settings.registry.cluster_id,
        trust_domain=workload_trust_domain(db),
        tunnels=True,
        services=(ServedService(f"{at.namespace}/{at.name}", tuple((p.number, p.target) for p in service.ports)),),
        capacity=remotes.capacity,
    )


@derived
def remote_identities(db: Mesh, ref: ServiceRef) -> frozenset[str]:
    """Return the identities of a global service's workloads in other networks."""
    networks = remote_services(db).get(f"{ref.namespace}/{ref.hostname}", {}) if is_global_service(db, ref) else {}
    return frozenset(identity for remotes in networks.values() for identity in remotes.identities)
