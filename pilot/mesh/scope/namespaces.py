"""The namespaces that there are, declared or not: an object or a proxy in a namespace is enough."""

from __future__ import annotations

from pilot.derive import hub
from pilot.mesh.kinds.destination_rules import destination_rules
from pilot.mesh.kinds.gateways import gateways
from pilot.mesh.kinds.namespaces import namespaces
from pilot.mesh.kinds.pods import pods
from pilot.mesh.kinds.service_entries import service_entries
from pilot.mesh.kinds.services import services
from pilot.mesh.kinds.sidecars import sidecars
from pilot.mesh.kinds.virtual_services import virtual_services
from pilot.mesh.kinds.workload_entries import workload_entries
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import proxy_namespaces

_VIEWS = (services, pods, workload_entries, service_entries, virtual_services, destination_rules, gateways, sidecars)


@hub
def known_namespaces(db: Mesh) -> frozenset[str]:
    """Returns the namespaces of all clusters that are declared, or have objects that services and routes are made of, or proxies."""
    declared = (key.name for key in namespaces.all_keys(db))
    return frozenset(
        (*declared, *(name for view in _VIEWS for name in view.buckets(db, "namespace")), *proxy_namespaces(db))
    )
