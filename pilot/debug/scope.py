"""What a proxy sees of the mesh: sidecarz. Rules are named by "namespace/name"."""
from __future__ import annotations

from typing import Any

from pilot.debug.page import Later, Query, asked_connection
from pilot.debug.plain import plain
from pilot.debug.registry import show_service
from pilot.debug.sources import Sources
from pilot.model.service import ServiceRef
from pilot.model.views.classify import outbound_facet, scope_of
from pilot.model.views.destination_rules import merged_rule_key
from pilot.model.views.endpoints import service_accounts
from pilot.model.views.imports import egress_services, scope_services
from pilot.model.views.services import service
from pilot.model.views.sidecar_scope import egress_listeners, find_sidecar, outbound_traffic_policy

_DEFAULT = "default-sidecar"


def sidecarz(sources: Sources, query: Query) -> Any:
    """Returns the scope of proxyID: which Sidecar applies, what it imports listener by listener, and what happens to the rest."""
    db = sources.db
    node_id = asked_connection(sources, query).proxy_key
    scope, labels = scope_of(db, node_id), outbound_facet(db, node_id).labels
    listeners = [[i.ref for i in egress_services(db, scope, index)] for index in range(len(egress_listeners(db, scope)))]
    refs = [imported.ref for imported in scope_services(db, scope).values()]
    known = {ref: (s, service_accounts(db, ref)) for ref in (*refs, *(r for refs in listeners for r in refs)) if (s := service(db, ref))}
    rules = {ref.hostname: [f"{o.namespace}/{o.name}" for o in merged_rule_key(db, scope.namespace, ref, labels)] for ref in refs}
    head = {
        "version": sources.fleet.version,
        "name": scope.sidecar.name if scope.sidecar is not None else _DEFAULT,
        "namespace": scope.namespace,
        "outboundTrafficPolicy": {"mode": outbound_traffic_policy(db, scope).mode},
        "sidecar": plain(find_sidecar(db, scope.sidecar)),
        "destinationRules": {host: names for host, names in rules.items() if names},
    }
    cluster_id = db.settings.registry.cluster_id

    def make() -> dict[str, Any]:
        shown = {ref: show_service(s, accounts, cluster_id) for ref, (s, accounts) in known.items()}

        def services(of: list[ServiceRef]) -> list[dict[str, Any]]:
            return [shown[ref] for ref in of if ref in shown]

        return head | {
            "services": services(refs),
            "egressListenerServices": [services(of) for of in listeners],
            "servicesByHostname": {ref.hostname: shown[ref] for ref in refs if ref in shown},
        }

    return Later(make)
