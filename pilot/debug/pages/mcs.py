"""The debug page mcsz, which shows multi-cluster services (MCS). Field names match istiod's."""

from __future__ import annotations

from typing import Any

from pilot.config.kinds.kubernetes import SERVICE_EXPORT, SERVICE_IMPORT
from pilot.config.object import RegistryKey
from pilot.debug.page import Query
from pilot.debug.sources import Sources
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.clusterset import DOMAIN, endpoint_visibility
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh


def mcsz(sources: Sources, query: Query) -> Any:
    """Return all services that clusters export or import, or None if there are none."""
    db = sources.db
    keys = {key for table in (SERVICE_EXPORT.table(db), SERVICE_IMPORT.table(db)) for key, _ in table.rows()}
    return [_shared(db, key) for key in sorted(keys)] or None


def _shared(db: Mesh, key: RegistryKey) -> dict[str, Any]:
    imported = SERVICE_IMPORT.table(db).peek(key)
    return {
        "Cluster": key.cluster,
        "Name": key.name,
        "Namespace": key.namespace,
        "Exported": SERVICE_EXPORT.table(db).peek(key) is not None,
        "Imported": imported is not None,
        "ClusterSetVIP": imported.spec.ips[0] if imported is not None and imported.spec.ips else "",
        "Discoverability": _discoverability(db, key),
    }


def _discoverability(db: Mesh, key: RegistryKey) -> dict[str, str]:
    """Return the visibility of a service's endpoints in a cluster, keyed by hostname."""
    visibility_by_host = {}
    for domain in (db.settings.registry.domain, DOMAIN):
        ref = ServiceRef(kubernetes_hostname(key.name, key.namespace, domain), key.namespace)
        if (shared := service(db, ref)) is not None:
            visibility_by_host[ref.hostname] = (
                "AlwaysDiscoverable"
                if endpoint_visibility(db, shared).is_exported_from(key.cluster)
                else "DiscoverableFromSameCluster"
            )
    return visibility_by_host
