"""Debug pages of the service registry, such as registryz, endpointShardz, instancesz and networkz.

Field names match istiod's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import RegistryKey
from pilot.debug.page import Later, Query
from pilot.debug.plain_json import LazyFields
from pilot.debug.slices import collect_all
from pilot.debug.sources import Sources
from pilot.lib.labels import NETWORK
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.facets import ServiceTarget
from pilot.mesh.model.service import PUBLIC, Port, Registry, Resolution, Service, ServiceRef
from pilot.mesh.registry.aliases import aliases
from pilot.mesh.registry.endpoints import endpoints, service_accounts
from pilot.mesh.registry.external_addresses import declared_external_addresses
from pilot.mesh.registry.networks import NetworkGateway, all_network_gateways
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.tables.clusters import service_clusters
from pilot.mesh.tables.database import Mesh

ZERO_TIME = "0001-01-01T00:00:00Z"
_NO_ADDRESS = "0.0.0.0"
# istiod writes these as numbers
_RESOLUTION = {
    Resolution.CLIENT_SIDE_LB: 0,
    Resolution.DNS_LB: 1,
    Resolution.PASSTHROUGH: 2,
    Resolution.DNS_ROUND_ROBIN_LB: 3,
    Resolution.ALIAS: 4,
    Resolution.DYNAMIC_DNS: 5,
}
_HEALTH = {
    EndpointHealth.UNKNOWN: 0,
    EndpointHealth.HEALTHY: 1,
    EndpointHealth.UNHEALTHY: 2,
    EndpointHealth.DRAINING: 3,
    EndpointHealth.TERMINATING: 4,
}
_DISTRIBUTION = {"": 0, "PreferSameZone": 1, "PreferSameNode": 2}


async def registryz(sources: Sources, query: Query) -> Any:
    """Return all services, ordered by age, oldest first."""
    db = sources.db
    details = await collect_all(
        service_details(db, s) for ref in service_refs(db) if (s := service(db, ref)) is not None
    )
    return Later(lambda: map(show_service, details))


async def endpoint_shardz(sources: Sources, query: Query) -> Any:
    """Return the endpoints of all services, grouped by hostname, namespace and shard."""
    db = sources.db

    def shard_entry(ref: ServiceRef) -> tuple[Service, list[Endpoint], tuple[str, ...]] | None:
        s = service(db, ref)
        its_endpoints = [e for port in s.ports for e in endpoints(db, ref, port.number)] if s is not None else []
        return (s, its_endpoints, service_accounts(db, ref)) if s is not None and its_endpoints else None

    hosts: dict[str, list[tuple[Service, list[Endpoint], tuple[str, ...]]]] = defaultdict(list)
    for entry in await collect_all(map(shard_entry, service_refs(db))):
        if entry is not None:
            hosts[entry[0].hostname].append(entry)

    def show(s: Service, its_endpoints: list[Endpoint], accounts: tuple[str, ...]) -> dict[str, Any]:
        return {"Shards": _shards(s, its_endpoints), "ServiceAccounts": _set(accounts)}

    return Later(
        lambda: LazyFields(
            (host, {entry[0].namespace: show(*entry) for entry in entries}) for host, entries in hosts.items()
        )
    )


async def instancesz(sources: Sources, query: Query) -> Any:
    """Return the service ports of each connected proxy."""
    db, connections = sources.db, sources.fleet.connections()
    present = (
        c for c in connections if db.proxies.peek(c.proxy_key) is not None
    )  # it may have disconnected in the meantime
    return dict(
        await collect_all(
            (c.proxy.id, [_target(sources, target) for target in service_targets(db, c.proxy_key)]) for c in present
        )
    )


def clusterz(sources: Sources, query: Query) -> Any:
    """Return the clusters of the registry, the local cluster first. The names of their Secrets are not exposed."""
    local_cluster = sources.db.settings.registry.cluster_id
    return [
        {"id": cluster, "secretName": "", "syncStatus": "synced"}
        for cluster in dict.fromkeys((local_cluster, *service_clusters(sources.db)))
    ]


def networkz(sources: Sources, query: Query) -> Any:
    """Return the network gateways, including gateways that have only a hostname."""
    return [show_network_gateway(g) for g in all_network_gateways(sources.db).gateways]


def show_network_gateway(g: NetworkGateway) -> dict[str, Any]:
    """Return a network gateway. Its service account is always empty, because only ambient gateways have one."""
    shown: dict[str, Any] = {
        "Network": g.network,
        "Cluster": g.cluster,
        "Addr": g.address,
        "Port": g.port,
        "HBONEPort": g.hbone_port,
    }
    return shown | {"ServiceAccount": {"Namespace": "", "Name": ""}}


class ServiceDetails(NamedTuple):
    """A service with details from its objects: its type, its external addresses keyed by cluster, and its aliases."""

    service: Service
    type: str
    external: Mapping[str, tuple[str, ...]]
    aliases: tuple[ServiceRef, ...]
    own_cluster: str


def service_details(db: Mesh, s: Service) -> ServiceDetails:
    """Return a service with the current details from its objects."""
    local_cluster = db.settings.registry.cluster_id
    rows = {}
    if s.registry is Registry.KUBERNETES:
        clusters = dict.fromkeys((local_cluster, *(cluster for cluster, _ in s.cluster_addresses)))
        rows = {
            c: row
            for c in clusters
            if (row := SERVICE.table(db).peek(RegistryKey(c, s.source.namespace, s.source.name))) is not None
        }
    kind = next((row.spec.type or "ClusterIP" for row in rows.values()), "")
    external = {
        cluster: addresses for cluster, row in rows.items() if (addresses := declared_external_addresses(row.spec))
    }
    return ServiceDetails(s, kind, external, aliases(db).get(s.hostname, ()), local_cluster)


def show_service(details: ServiceDetails) -> dict[str, Any]:
    """Return a service in istiod's format. The resource version is always "", because it is not stored."""
    s = details.service
    vips = {
        cluster: list(addresses)
        for cluster, addresses in s.cluster_addresses or ((details.own_cluster, s.addresses),)
        if addresses
    }
    if s.registry is Registry.KUBERNETES and not vips:
        vips = {details.own_cluster: [_NO_ADDRESS]}
    fields: dict[str, Any] = {
        "Attributes": _attributes(details),
        "ports": [_port(p) for p in s.ports],
        "serviceAccounts": list(s.service_accounts),
        "creationTime": s.created or ZERO_TIME,
        "hostname": s.hostname,
        "clusterVIPs": {"Addresses": vips if s.registry is Registry.KUBERNETES else None},
        "defaultAddress": s.addresses[0] if s.addresses else _NO_ADDRESS,
        "autoAllocatedIPv4Address": next((a for a in s.auto_addresses if ":" not in a), ""),
        "autoAllocatedIPv6Address": next((a for a in s.auto_addresses if ":" in a), ""),
    }
    always = {"Resolution": _RESOLUTION[s.resolution], "MeshExternal": s.mesh_external, "ResourceVersion": ""}
    return {name: value for name, value in fields.items() if value} | always


def _attributes(details: ServiceDetails) -> dict[str, Any]:
    s = details.service
    return {
        "ServiceRegistry": str(s.registry),
        "Name": s.name,
        "Namespace": s.namespace,
        "Labels": dict(s.labels) or None,
        "ExportTo": None if s.export_to == PUBLIC else _set(s.export_to),
        "Visibility": 0,
        "LabelSelectors": dict(s.selector) or None,
        "Aliases": [{"Hostname": alias.hostname, "Namespace": alias.namespace} for alias in details.aliases] or None,
        "ClusterExternalAddresses": {
            "Addresses": {cluster: list(addresses) for cluster, addresses in details.external.items()} or None
        },
        "ClusterExternalPorts": None,
        "PassthroughTargetPorts": None,
        "Type": details.type,
        "ExternalName": s.external_name,
        "NodeLocal": s.node_local,
        "TrafficDistribution": _DISTRIBUTION.get(s.traffic_distribution, 0),
        "ObjectName": s.source.name if s.registry is Registry.EXTERNAL else "",
        "DNSConnectStrategy": int(s.race_connect),
        "PublishNotReadyAddresses": s.publish_not_ready,
    }


def _port(p: Port) -> dict[str, Any]:
    return {"name": p.name, "port": p.number, "protocol": str(p.protocol)}


def _shards(s: Service, its_endpoints: Iterable[Endpoint]) -> dict[str, list[dict[str, Any]]]:
    provider = "External" if s.registry is Registry.EXTERNAL else "Kubernetes"
    shards: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for endpoint in its_endpoints:
        shards[f"{provider}/{endpoint.cluster_id}"].append(_endpoint(endpoint, s.registry is Registry.KUBERNETES))
    return shards


def _endpoint(e: Endpoint, of_kubernetes: bool) -> dict[str, Any]:
    labels = dict(sorted(e.labels))
    return {
        "Labels": ({NETWORK: e.network} | labels if of_kubernetes else labels) or None,
        "Addresses": list(e.addresses),
        "ServicePortName": e.port_name,
        "LegacyClusterPortKey": 0,
        "ServiceAccount": e.service_account,
        "Network": e.network,
        "Locality": {"Label": e.locality_text, "ClusterID": e.cluster_id},
        "EndpointPort": e.port,
        "LbWeight": e.weight,
        "TLSMode": e.tls_mode,
        "Namespace": e.namespace,
        "WorkloadName": e.workload,
        "HostName": e.hostname,
        "SubDomain": e.subdomain,
        "HealthStatus": _HEALTH[e.health],
        "SendUnhealthyEndpoints": of_kubernetes,
        "NodeName": e.node,
    }


def _target(sources: Sources, target: ServiceTarget) -> dict[str, Any]:
    s = service(sources.db, target.ref)
    shown = show_service(service_details(sources.db, s)) if s is not None else None
    return {"Service": shown, "Port": _port(target.port) | {"TargetPort": target.target_port}}


def _set(names: Iterable[str]) -> dict[str, Any]:
    """Return the JSON form of a Go set."""
    return {name: {} for name in sorted(names)}
