"""The networks of workloads, and the gateways through which clients in other networks reach them.

https://istio.io/latest/docs/ops/deployment/deployment-models/#network-models
"""

from __future__ import annotations

import ipaddress
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes.service import Service
from pilot.config.mesh.mesh_networks import MeshNetworks, Network
from pilot.config.object import Object, RegistryKey
from pilot.derive import derived, hub
from pilot.lib.addresses import is_ip
from pilot.lib.labels import NETWORK
from pilot.mesh.gateway_api.network_gateways import listener_network_gateways
from pilot.mesh.registry.external_addresses import external_addresses
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_networks
from pilot.mesh.tables.namespaces import namespace_labels

GATEWAY_PORT_LABEL = "networking.istio.io/gatewayPort"
GATEWAY_PORT, HBONE_PORT = 15443, 15008


# -- the network of a workload -----------------------------------------------------------------------------------------


@derived
def cluster_network(db: Mesh, cluster: str) -> str:
    """Return the network label of the control plane's namespace in a cluster, or "" if it has no such label."""
    return namespace_labels(db, cluster, db.settings.registry.namespace).get(NETWORK, "")


class Cidr(NamedTuple):
    network: str
    prefix: ipaddress.IPv4Network | ipaddress.IPv6Network


class DefaultNetwork(NamedTuple):
    """The network of workloads that have no network label.

    It is `name` if it is set. Otherwise, it is the network with the shortest prefix that contains the workload's
    address.
    """

    name: str
    cidrs: tuple[Cidr, ...]


@hub
def default_network(db: Mesh, cluster: str) -> DefaultNetwork:
    """Return the default network of a cluster.

    It is the network label of the control plane's namespace or, if there is none, the mesh network that has the cluster
    as a registry. If there is neither, the address of a workload determines its network.
    """
    name = cluster_network(db, cluster)
    if name:
        return DefaultNetwork(name, ())
    networks = mesh_networks(db)
    name = next(
        (network for network, config in sorted(networks.networks.items()) if _has_registry(config, cluster)), ""
    )
    return DefaultNetwork(name, () if name else tuple(_cidrs(networks)))


def find_network(db: Mesh, cluster: str, address: str, labels: Mapping[str, str]) -> str:
    """Return the network of a workload, or "" if it has none. Not memoised.

    The label takes precedence over the default network of the cluster.
    """
    if network := labels.get(NETWORK):
        return network
    default = default_network(db, cluster)
    if not default.cidrs or not is_ip(address):
        return default.name
    ip = ipaddress.ip_address(address)
    return next((cidr.network for cidr in default.cidrs if ip in cidr.prefix), "")


def _has_registry(network: Network, cluster: str) -> bool:
    return any(endpoint.from_registry == cluster for endpoint in network.endpoints)


def _cidrs(networks: MeshNetworks) -> Iterable[Cidr]:
    """Return the prefixes of all networks, shortest first. Prefixes of equal length are sorted by network, as in
    istiod."""
    cidrs = []
    for name, network in networks.networks.items():
        for text in (endpoint.from_cidr for endpoint in network.endpoints if endpoint.from_cidr):
            try:
                cidrs.append(Cidr(name, ipaddress.ip_network(text, strict=False)))
            except ValueError:
                continue
    return sorted(cidrs, key=lambda cidr: (cidr.prefix.prefixlen, cidr.network))


# -- gateways ----------------------------------------------------------------------------------------------------------


class NetworkGateway(NamedTuple):
    """A gateway through which traffic enters a network.

    `port` is 0 if the gateway does not route mesh mTLS by SNI. `cluster` is "" if it accepts traffic to all clusters.
    """

    address: str
    port: int
    network: str
    cluster: str = ""
    hbone_port: int = 0


class NetworkGateways(msgspec.Struct, frozen=True):
    """All network gateways, in sorted order.

    Endpoint weights are multiplied by `scale`, so that they can be divided evenly among gateways.
    """

    gateways: tuple[NetworkGateway, ...] = ()
    scale: int = 1

    def into(self, network: str, cluster: str) -> tuple[NetworkGateway, ...]:
        """Return the gateways of a cluster in a network or, if it has none, all gateways of the network."""
        candidates = tuple(gateway for gateway in self.gateways if gateway.network == network)
        return tuple(gateway for gateway in candidates if gateway.cluster == cluster) or candidates


@hub
def all_network_gateways(db: Mesh) -> NetworkGateways:
    """Return all network gateways, including those that have only a hostname."""
    gateways: set[NetworkGateway] = set()
    networks = mesh_networks(db)
    for name, network in networks.networks.items():
        gateways.update(
            NetworkGateway(gateway.address, gateway.port, name) for gateway in network.gateways if gateway.address
        )
    cluster = db.settings.registry.cluster_id
    gateways.update(
        NetworkGateway(listener.address, listener.port, listener.network, cluster, listener.hbone_port)
        for listener in listener_network_gateways(db)
    )
    registry_gateways = _registry_gateways(networks, db.settings.registry.domain)
    for key in {*registry_gateways, *SERVICE.keys(db, "network", True)}:
        row = SERVICE.get(db, key)
        for template in (
            () if row is None else _labelled_gateway(row) if NETWORK in row.labels else registry_gateways.get(key, ())
        ):
            for address, port in external_addresses(db, key, template.port):
                gateways.add(template._replace(address=address, port=port, cluster=key.cluster))
    return build_network_gateways(gateways)


@hub
def network_gateways(db: Mesh) -> NetworkGateways:
    """Return the network gateways that have an IP address. Only these can replace endpoints.

    A gateway with a hostname is repeated for each address that the hostname resolves to.
    """
    gateways: list[NetworkGateway] = []
    for gateway in all_network_gateways(db).gateways:
        addresses = (gateway.address,) if is_ip(gateway.address) else db.resolved_hosts.get(gateway.address) or ()
        gateways += (gateway._replace(address=address) for address in addresses)
    return build_network_gateways(gateways)


@hub
def gateway_hosts(db: Mesh) -> frozenset[str]:
    """Return the hostnames of network gateways, to be resolved to addresses."""
    return frozenset(gateway.address for gateway in all_network_gateways(db).gateways if not is_ip(gateway.address))


@hub
def unresolved_gateways(db: Mesh) -> tuple[NetworkGateway, ...]:
    """Return the network gateways whose hostname has not been resolved, or resolves to no address."""
    return tuple(
        gateway
        for gateway in all_network_gateways(db).gateways
        if not is_ip(gateway.address) and not db.resolved_hosts.get(gateway.address)
    )


def build_network_gateways(gateways: Iterable[NetworkGateway]) -> NetworkGateways:
    """Return the sorted gateways and their scale.

    The scale is the least common multiple of the number of gateways in each network, and in each cluster of a network.
    """
    ordered = tuple(sorted(set(gateways)))
    counts: dict[object, int] = {}
    for gateway in ordered:
        for group in (gateway.network, (gateway.network, gateway.cluster)):
            counts[group] = counts.get(group, 0) + 1
    return NetworkGateways(ordered, math.lcm(*counts.values()))


def _labelled_gateway(row: Object[Service]) -> tuple[NetworkGateway, ...]:
    """Return the gateway that a Service with a network label declares, without its address. Return () if it has no
    gateway port."""
    text = row.labels.get(GATEWAY_PORT_LABEL, "")
    requested = int(text) if text.isdecimal() else GATEWAY_PORT
    ports = {port.port for port in row.spec.ports}
    port, hbone = requested if requested in ports else 0, HBONE_PORT if HBONE_PORT in ports else 0
    return (NetworkGateway("", port, row.labels[NETWORK], hbone_port=hbone),) if port or hbone else ()


def _registry_gateways(networks: MeshNetworks, domain: str) -> dict[RegistryKey, tuple[NetworkGateway, ...]]:
    """Return the gateways for which the mesh networks name a Service, keyed by the Service in each registry of the
    network.

    Their addresses are not set.
    """
    gateways: dict[RegistryKey, tuple[NetworkGateway, ...]] = {}
    for name, network in networks.networks.items():
        clusters = {endpoint.from_registry: None for endpoint in network.endpoints if endpoint.from_registry}
        for cluster, gateway in itertools.product(clusters, network.gateways):
            service, _, rest = (gateway.registry_service_name or "").partition(".")
            key = RegistryKey(cluster, rest.partition(".")[0], service)
            if gateway.registry_service_name == kubernetes_hostname(key.name, key.namespace, domain):
                gateways[key] = (*gateways.get(key, ()), NetworkGateway("", gateway.port, name))
    return gateways
