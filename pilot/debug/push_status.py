"""What is odd about the mesh without being anybody's mistake: push_status, by the names of istiod's health metrics."""
from __future__ import annotations

from typing import Any

from pilot.debug.page import Query
from pilot.debug.sources import Sources
from pilot.model.service import Resolution
from pilot.model.views.endpoints import endpoints
from pilot.model.views.service_targets import service_targets
from pilot.model.views.services import service, service_refs
from pilot.translate.names import outbound_cluster

_BY_DNS = (Resolution.DNS_LB, Resolution.DNS_ROUND_ROBIN_LB)


def push_status(sources: Sources, query: Query) -> Any:
    """Returns metric → key → proxy and message, as it is now. There are services without endpoints, and proxies that no service selects."""
    db = sources.db
    empty: dict[str, Any] = {}
    unresolved: dict[str, Any] = {}
    for ref in service_refs(db):
        found = service(db, ref)
        for port in found.ports if found is not None else ():
            if found is None or endpoints(db, ref, port.number):
                continue
            name = outbound_cluster(port.number, "", found.hostname)
            if found.resolution is Resolution.CLIENT_SIDE_LB:
                empty[name] = {}
            elif found.resolution in _BY_DNS:
                unresolved[name] = {"message": f"{found.hostname} has no endpoints to resolve"}
    idle = {c.proxy.id: {"proxy": c.proxy.id} for c in sources.fleet.connections() if not service_targets(db, c.proxy_key)}
    status = {"pilot_dns_cluster_without_endpoints": unresolved, "pilot_eds_no_instances": empty, "pilot_no_ip": idle}
    return {metric: keys for metric, keys in status.items() if keys}
