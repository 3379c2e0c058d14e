"""The clusters of the mesh, and the services that are local to their cluster.

The setting `cluster_id` names the local cluster. Only the configuration in this cluster takes effect.
https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-ServiceSettings-Settings
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.mesh.mesh_config import ServiceSettings
from pilot.derive import hub
from pilot.lib.hosts import is_wildcard, most_specific
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def service_clusters(db: Mesh) -> tuple[str, ...]:
    """Return the clusters with Kubernetes Services. The local cluster is first, and the others are sorted by name."""
    return tuple(
        sorted(
            SERVICE.buckets(db, "cluster"), key=lambda cluster: (cluster != db.settings.registry.cluster_id, cluster)
        )
    )


def cluster_of(db: Mesh, proxy: Proxy) -> str:
    """Return the cluster in a proxy's metadata, or the local cluster if the metadata names none."""
    return proxy.text("CLUSTER_ID", db.settings.registry.cluster_id)


def preferred_cluster(db: Mesh, proxy: Proxy) -> str:
    """Return the cluster whose service addresses a proxy prefers.

    Return "" for proxies in the local cluster and in clusters without Services. These proxies use the default
    addresses.
    """
    cluster = cluster_of(db, proxy)
    return cluster if cluster != db.settings.registry.cluster_id and cluster in service_clusters(db) else ""


@hub
def cluster_local_hosts(db: Mesh) -> Mapping[str, bool]:
    """Return whether services are local to their cluster, keyed by host. Hosts may be wildcards."""
    mesh, domain = mesh_config(db), db.settings.registry.domain
    config = mesh.default_config
    discovery = config.discovery_address.rpartition(":")[0] if config is not None else ""
    defaults = [f"*.kube-system.svc.{domain}", f"kubernetes.default.svc.{domain}"]
    if discovery:
        defaults.append(discovery if discovery.endswith(domain) else f"{discovery}.{domain}")
    return build_cluster_local_hosts(mesh.service_settings, defaults)


def build_cluster_local_hosts(settings: Iterable[ServiceSettings], defaults: Iterable[str]) -> dict[str, bool]:
    """Return whether hosts are local to their cluster: those in the service settings, and the defaults that no setting
    overrides."""
    explicit: dict[str, bool] = {}
    local_by_default = list(defaults)
    for setting in settings:
        local = setting.settings is not None and setting.settings.cluster_local
        explicit.update(dict.fromkeys(setting.hosts, local))
        if not local:
            local_by_default = [
                default
                for default in local_by_default
                if not any(
                    host == default or (is_wildcard(default) and host.endswith(default[1:])) for host in setting.hosts
                )
            ]
    return explicit | dict.fromkeys(local_by_default, True)


def is_cluster_local(db: Mesh, hostname: str) -> bool:
    """Return whether a service is local to its cluster. Not memoised."""
    return is_local(cluster_local_hosts(db), hostname)


def is_local(hosts: Mapping[str, bool], hostname: str) -> bool:
    """Return the value of the most specific host that matches a hostname, or False if none matches."""
    if hostname in hosts:
        return hosts[hostname]
    best = most_specific(hostname, [h for h in hosts if is_wildcard(h)])
    return best is not None and hosts[best]


def is_included(db: Mesh, cluster: str) -> bool:
    """Return whether ztunnels receive the workloads of a cluster. Not memoised.

    In a multi-network mesh, they receive the workloads of all clusters. Otherwise, they receive only those of the local
    cluster.
    """
    ambient = db.settings.ambient
    return ambient.enabled and (ambient.multi_network or cluster == db.settings.registry.cluster_id)
