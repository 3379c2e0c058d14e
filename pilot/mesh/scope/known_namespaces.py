"""The namespaces that exist: those that are declared, and those that contain an object or a proxy."""

from __future__ import annotations

from pilot.config.kinds.istio import DESTINATION_RULE, GATEWAY, SERVICE_ENTRY, SIDECAR, VIRTUAL_SERVICE, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import NAMESPACE, POD, SERVICE
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import proxy_namespaces

_KINDS = (SERVICE, POD, WORKLOAD_ENTRY, SERVICE_ENTRY, VIRTUAL_SERVICE, DESTINATION_RULE, GATEWAY, SIDECAR)


@hub
def known_namespaces(db: Mesh) -> frozenset[str]:
    """Return the namespaces that are declared in any cluster, or that contain proxies, workloads, services or routing
    objects."""
    namespace_names = (key.name for key in NAMESPACE.all_keys(db))
    return frozenset(
        (*namespace_names, *(name for kind in _KINDS for name in kind.buckets(db, "namespace")), *proxy_namespaces(db))
    )
