"""The service registry: registryz, endpointShardz, instancesz, networkz. Field names are those of istiod's pages."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pilot.debug.page import Later, Query
from pilot.debug.sources import Sources
from pilot.model.endpoint import Endpoint, Health
from pilot.model.facets import ServiceTarget
from pilot.model.service import Port, Registry, Resolution, Service
from pilot.model.views.clusters import service_clusters
from pilot.model.views.endpoints import endpoints, service_accounts
from pilot.model.views.networks import all_network_gateways
from pilot.model.views.service_targets import service_targets
from pilot.model.views.services import service, service_refs

_ZERO_TIME = "0001-01-01T00:00:00Z"
# istiod writes these as numbers
_RESOLUTION = {
    Resolution.CLIENT_SIDE_LB: 0,
    Resolution.DNS_LB: 1,
    Resolution.PASSTHROUGH: 2,
    Resolution.DNS_ROUND_ROBIN_LB: 3,
    Resolution.ALIAS: 4,
    Resolution.DYNAMIC_DNS: 5,
}
_HEALTH = {Health.UNKNOWN: 0, Health.HEALTHY: 1, Health.UNHEALTHY: 2, Health.DRAINING: 3, Health.TERMINATING: 4}
_DISTRIBUTION = {"": 0, "PreferSameZone": 1, "PreferSameNode": 2}


def registryz(sources: Sources, query: Query) -> Any:
    """Returns every service, oldest first."""
    db = sources.db
    found = [(s, service_accounts(db, ref)) for ref in service_refs(db) if (s := service(db, ref)) is not None]
    return Later(lambda: [show_service(s, accounts, db.settings.registry.cluster_id) for s, accounts in found])


def endpoint_shardz(sources: Sources, query: Query) -> Any:
    """Returns host → namespace → the endpoints by where they come from."""
    db = sources.db
    found = []
    for ref in service_refs(db):
        s = service(db, ref)
        if s is not None:
            found.append((s, [e for port in s.ports for e in endpoints(db, ref, port.number)], service_accounts(db, ref)))

    def make() -> dict[str, Any]:
        hosts: dict[str, Any] = defaultdict(dict)
        for s, its_endpoints, accounts in found:
            hosts[s.hostname][s.namespace] = {"Shards": _shards(s, its_endpoints), "ServiceAccounts": _set(accounts)}
        return hosts

    return Later(make)


def instancesz(sources: Sources, query: Query) -> Any:
    """Returns the ports of services that each connected proxy stands for."""
    db = sources.db
    return {c.proxy.id: [_target(sources, target) for target in service_targets(db, c.proxy_key)] for c in sources.fleet.connections()}


def clusterz(sources: Sources, query: Query) -> Any:
    """Returns the clusters whose services are known, the own one first."""
    own = sources.db.settings.registry.cluster_id
    return [{"id": cluster, "syncStatus": "synced"} for cluster in dict.fromkeys((own, *service_clusters(sources.db)))]


def networkz(sources: Sources, query: Query) -> Any:
    """Returns the gateways between networks, those that have only a host name too."""
    return [
        {"Network": g.network, "Cluster": g.cluster, "Addr": g.address, "Port": g.port, "HBONEPort": g.hbone_port}
        for g in all_network_gateways(sources.db).gateways
    ]


def show_service(s: Service, accounts: Iterable[str], cluster_id: str) -> dict[str, Any]:
    """Returns a service in istiod's words. `cluster_id`: the own cluster, which has the addresses of ServiceEntries."""
    vips = {cluster: list(found) for cluster, found in s.cluster_addresses or ((cluster_id, s.addresses),) if found}
    fields: dict[str, Any] = {
        "Attributes": _attributes(s),
        "ports": [_port(p) for p in s.ports],
        "serviceAccounts": list(accounts),
        "creationTime": s.created or _ZERO_TIME,
        "hostname": s.hostname,
        "clusterVIPs": {"Addresses": vips or None},
        "defaultAddress": s.addresses[0] if s.addresses else "0.0.0.0",
        "autoAllocatedIPv4Address": next((a for a in s.auto_addresses if ":" not in a), ""),
        "autoAllocatedIPv6Address": next((a for a in s.auto_addresses if ":" in a), ""),
    }
    always = {"Resolution": _RESOLUTION[s.resolution], "MeshExternal": s.mesh_external}
    return {name: value for name, value in fields.items() if value} | always


def _attributes(s: Service) -> dict[str, Any]:
    return {
        "ServiceRegistry": str(s.registry),
        "Name": s.name,
        "Namespace": s.namespace,
        "Labels": dict(s.labels) or None,
        "ExportTo": _set(s.export_to),
        "LabelSelectors": dict(s.selector) or None,
        "ExternalName": s.external_name,
        "NodeLocal": s.node_local,
        "TrafficDistribution": _DISTRIBUTION.get(s.traffic_distribution, 0),
        "ObjectName": s.source.name,
        "PublishNotReadyAddresses": s.publish_not_ready,
    }


def _port(p: Port) -> dict[str, Any]:
    return {"name": p.name, "port": p.number, "protocol": str(p.protocol)}


def _shards(s: Service, its_endpoints: Iterable[Endpoint]) -> dict[str, list[dict[str, Any]]]:
    provider = "External" if s.registry is Registry.EXTERNAL else "Kubernetes"
    shards: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for endpoint in its_endpoints:
        shards[f"{provider}/{endpoint.cluster_id}"].append(_endpoint(endpoint))
    return shards


def _endpoint(e: Endpoint) -> dict[str, Any]:
    return {
        "Labels": dict(e.labels) or None,
        "Addresses": list(e.addresses),
        "ServicePortName": e.port_name,
        "ServiceAccount": e.service_account,
        "Network": e.network,
        "Locality": {"Label": str(e.locality), "ClusterID": e.cluster_id},
        "EndpointPort": e.port,
        "LbWeight": e.weight,
        "TLSMode": e.tls_mode,
        "Namespace": e.namespace,
        "WorkloadName": e.workload,
        "HostName": e.hostname,
        "HealthStatus": _HEALTH[e.health],
        "NodeName": e.node,
    }


def _target(sources: Sources, target: ServiceTarget) -> dict[str, Any]:
    s = service(sources.db, target.ref)
    shown = show_service(s, service_accounts(sources.db, target.ref), sources.db.settings.registry.cluster_id) if s is not None else None
    return {"Service": shown, "Port": _port(target.port) | {"TargetPort": target.target_port}}


def _set(names: Iterable[str]) -> dict[str, Any]:
    """Returns a Go set as it is in JSON."""
    return {name: {} for name in sorted(names)}
