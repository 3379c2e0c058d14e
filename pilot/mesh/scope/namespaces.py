"""The namespaces that there are, declared or not: an object or a proxy in a namespace is enough."""

from __future__ import annotations

from pilot.config.kinds.istio import DESTINATION_RULE, GATEWAY, SERVICE_ENTRY, SIDECAR, VIRTUAL_SERVICE, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import NAMESPACE, POD, SERVICE
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import proxy_namespaces

_VIEWS = (SERVICE, POD, WORKLOAD_ENTRY, SERVICE_ENTRY, VIRTUAL_SERVICE, DESTINATION_RULE, GATEWAY, SIDECAR)


@hub
def known_namespaces(db: Mesh) -> frozenset[str]:
    """Returns the namespaces of all clusters that are declared, or have objects that services and routes are made of, or proxies."""
    declared = (key.name for key in NAMESPACE.all_keys(db))
    return frozenset(
        (*declared, *(name for view in _VIEWS for name in view.buckets(db, "namespace")), *proxy_namespaces(db))
    )
