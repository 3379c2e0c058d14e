"""Services that are never reached across clusters.

https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-ServiceSettings-Settings
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.mesh.mesh_config import ServiceSettings
from pilot.derive import hub
from pilot.lib.hosts import is_wildcard, most_specific
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def cluster_local_hosts(db: Mesh) -> Mapping[str, bool]:
    """Returns which hosts, wildcards too, are local to their cluster; the most specific decides."""
    mesh, domain = mesh_config(db), db.settings.registry.domain
    config = mesh.default_config
    discovery = config.discovery_address.rpartition(":")[0] if config is not None else ""
    defaults = [f"*.kube-system.svc.{domain}", f"kubernetes.default.svc.{domain}"]
    if discovery:
        defaults.append(discovery if discovery.endswith(domain) else f"{discovery}.{domain}")
    return build_cluster_local_hosts(mesh.service_settings, defaults)


def build_cluster_local_hosts(settings: Iterable[ServiceSettings], defaults: Iterable[str]) -> dict[str, bool]:
    """Returns what the settings say of hosts, and of the defaults those that no setting denies."""
    out: dict[str, bool] = {}
    left = list(defaults)
    for s in settings:
        local = s.settings is not None and s.settings.cluster_local
        out.update(dict.fromkeys(s.hosts, local))
        if not local:
            left = [d for d in left if not any(h == d or (is_wildcard(d) and h.endswith(d[1:])) for h in s.hosts)]
    return out | dict.fromkeys(left, True)


def is_cluster_local(db: Mesh, hostname: str) -> bool:
    """Returns whether a service is local to its cluster. No node of its own."""
    return is_local(cluster_local_hosts(db), hostname)


def is_local(hosts: Mapping[str, bool], hostname: str) -> bool:
    """Returns what the most specific of these hosts says of one."""
    if hostname in hosts:
        return hosts[hostname]
    best = most_specific(hostname, [h for h in hosts if is_wildcard(h)])
    return best is not None and hosts[best]
