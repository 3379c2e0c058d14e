"""Networks: which one a workload is in, and the gateways through which another one is reached.

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
from pilot.derive import hub
from pilot.lib.addresses import is_ip
from pilot.lib.labels import NETWORK
from pilot.mesh.gateway_api.network_gateways import network_ways
from pilot.mesh.registry.external_addresses import external_addresses
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_networks
from pilot.mesh.tables.namespaces import namespace_labels

GATEWAY_PORT_LABEL = "networking.istio.io/gatewayPort"
GATEWAY_PORT, HBONE_PORT = 15443, 15008


# -- the network of a workload ---------------------------------------------------------------------------------------------


class Cidr(NamedTuple):
    network: str
    prefix: ipaddress.IPv4Network | ipaddress.IPv6Network


class DefaultNetwork(NamedTuple):
    """The network of workloads that name none: `name` where it is set, else that of the shortest prefix that they are in."""

    name: str
    cidrs: tuple[Cidr, ...]


@hub
def default_network(db: Mesh, cluster: str) -> DefaultNetwork:
    """Returns the network of what runs in a cluster: by the label of the control plane's namespace there, else the one of the mesh networks that
    names the cluster, else by address."""
    name = namespace_labels(db, cluster, db.settings.registry.namespace).get(NETWORK, "")
    if name:
        return DefaultNetwork(name, ())
    networks = mesh_networks(db)
    name = next((n for n, w in sorted(networks.networks.items()) if _has_registry(w, cluster)), "")
    return DefaultNetwork(name, () if name else tuple(_cidrs(networks)))


def find_network(db: Mesh, cluster: str, address: str, labels: Mapping[str, str]) -> str:
    """Returns the network of a workload of a cluster: by its labels, else by the default, else by its address; "" for none. No node of its own."""
    if said := labels.get(NETWORK):
        return said
    default = default_network(db, cluster)
    if not default.cidrs or not is_ip(address):
        return default.name
    ip = ipaddress.ip_address(address)
    return next((c.network for c in default.cidrs if ip in c.prefix), "")


def _has_registry(network: Network, cluster: str) -> bool:
    return any(e.from_registry == cluster for e in network.endpoints)


def _cidrs(networks: MeshNetworks) -> Iterable[Cidr]:
    """Returns the prefixes of all networks, the shortest first, as the reference finds them."""
    found = []
    for name, network in networks.networks.items():
        for text in (e.from_cidr for e in network.endpoints if e.from_cidr):
            try:
                found.append(Cidr(name, ipaddress.ip_network(text, strict=False)))
            except ValueError:
                continue
    return sorted(found, key=lambda c: (c.prefix.prefixlen, c.network))


# -- gateways --------------------------------------------------------------------------------------------------------------


class NetworkGateway(NamedTuple):
    """A way into a network. `port` is 0 where mesh mTLS by SNI cannot use it; `cluster` is "" for a way into any."""

    address: str
    port: int
    network: str
    cluster: str = ""
    hbone_port: int = 0


class NetworkGateways(msgspec.Struct, frozen=True):
    """All gateways by address and port. Weights are multiplied by `scale`, so that they divide among gateways evenly."""

    gateways: tuple[NetworkGateway, ...] = ()
    scale: int = 1

    def into(self, network: str, cluster: str) -> tuple[NetworkGateway, ...]:
        """Returns the gateways of a cluster in a network, else all of the network."""
        of_network = tuple(g for g in self.gateways if g.network == network)
        return tuple(g for g in of_network if g.cluster == cluster) or of_network


@hub
def all_network_gateways(db: Mesh) -> NetworkGateways:
    """Returns the gateways of every network, those that have only a host name too."""
    found: set[NetworkGateway] = set()
    networks = mesh_networks(db)
    for name, network in networks.networks.items():
        found.update(NetworkGateway(g.address, g.port, name) for g in network.gateways if g.address)
    own = db.settings.registry.cluster_id
    found.update(NetworkGateway(w.address, w.port, w.network, own, w.hbone_port) for w in network_ways(db))
    named = _registry_gateways(networks, db.settings.registry.domain)
    for key in {*named, *SERVICE.keys(db, "network", True)}:
        row = SERVICE.get(db, key)
        for way in () if row is None else _labelled_gateway(row) if NETWORK in row.labels else named.get(key, ()):
            for address, port in external_addresses(db, key, way.port):
                found.add(way._replace(address=address, port=port, cluster=key.cluster))
    return build_network_gateways(found)


@hub
def network_gateways(db: Mesh) -> NetworkGateways:
    """Returns the gateways that endpoints can be replaced with: those of an IP address, and those of a host name by its addresses, as far as it is
    looked up."""
    found: list[NetworkGateway] = []
    for g in all_network_gateways(db).gateways:
        addresses = (g.address,) if is_ip(g.address) else db.resolved_hosts.get(g.address) or ()
        found += (g._replace(address=address) for address in addresses)
    return build_network_gateways(found)


@hub
def gateway_hosts(db: Mesh) -> frozenset[str]:
    """Returns the host names of gateways, which somebody has to look up."""
    return frozenset(g.address for g in all_network_gateways(db).gateways if not is_ip(g.address))


@hub
def unresolved_gateways(db: Mesh) -> tuple[NetworkGateway, ...]:
    """Returns the gateways of host names that are not looked up, or have no addresses."""
    return tuple(
        g for g in all_network_gateways(db).gateways if not is_ip(g.address) and not db.resolved_hosts.get(g.address)
    )


def build_network_gateways(gateways: Iterable[NetworkGateway]) -> NetworkGateways:
    """Returns the gateways in one order, with their scale: the least common multiple of the numbers of gateways a network and a network's cluster."""
    found = tuple(sorted(set(gateways)))
    counts: dict[object, int] = {}
    for g in found:
        for group in (g.network, (g.network, g.cluster)):
            counts[group] = counts.get(group, 0) + 1
    return NetworkGateways(found, math.lcm(*counts.values()))


def _labelled_gateway(o: Object[Service]) -> tuple[NetworkGateway, ...]:
    """Returns the gateway that a Service labelled with a network is, if it listens where one does; its address is still open."""
    text = o.labels.get(GATEWAY_PORT_LABEL, "")
    wanted = int(text) if text.isdecimal() else GATEWAY_PORT
    listens = {p.port for p in o.spec.ports}
    port, hbone = wanted if wanted in listens else 0, HBONE_PORT if HBONE_PORT in listens else 0
    return (NetworkGateway("", port, o.labels[NETWORK], hbone_port=hbone),) if port or hbone else ()


def _registry_gateways(networks: MeshNetworks, domain: str) -> dict[RegistryKey, tuple[NetworkGateway, ...]]:
    """Returns the Services that the mesh networks name as gateways, in each cluster whose registry they name beside; addresses are still open."""
    out: dict[RegistryKey, tuple[NetworkGateway, ...]] = {}
    for name, network in networks.networks.items():
        clusters = {e.from_registry: None for e in network.endpoints if e.from_registry}
        for cluster, g in itertools.product(clusters, network.gateways):
            service, _, rest = (g.registry_service_name or "").partition(".")
            key = RegistryKey(cluster, rest.partition(".")[0], service)
            if g.registry_service_name == kubernetes_hostname(key.name, key.namespace, domain):
                out[key] = (*out.get(key, ()), NetworkGateway("", g.port, name))
    return out
