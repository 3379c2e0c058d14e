"""The debug page sidecarz, which shows a proxy's Sidecar scope."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pilot.config.builtins import to_builtins
from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.object import Object
from pilot.debug.page import Later, Query, requested_connection
from pilot.debug.pages.registry import ZERO_TIME, ServiceDetails, service_details, show_service
from pilot.debug.plain_json import LazyFields
from pilot.debug.slices import collect_all
from pilot.debug.sources import Sources
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.classify import outbound_facet, scope_of
from pilot.mesh.registry.services import service
from pilot.mesh.scope.sidecar_scope import egress_listeners, find_sidecar, outbound_traffic_policy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import MergedRule, merged_rule, merged_rule_key
from pilot.mesh.traffic.imports import egress_services, scope_services

_DEFAULT = "default-sidecar"
_REGISTRY_ONLY = "REGISTRY_ONLY"
"""Proto JSON omits this mode, because it is the first value of its enum."""


async def sidecarz(sources: Sources, query: Query) -> Any:
    """Return the scope of the proxy: its Sidecar, the imports of each listener, and its outbound traffic policy."""
    db = sources.db
    connection = requested_connection(sources, query)
    node_id, is_gateway = connection.proxy_key, connection.proxy.type is NodeType.ROUTER
    scope, labels = scope_of(db, node_id), outbound_facet(db, node_id).labels
    indexes = range(len(egress_listeners(db, scope)))
    listeners = [await collect_all(i.ref for i in tuple(egress_services(db, scope, index))) for index in indexes]
    refs = await collect_all(imported.ref for imported in tuple(scope_services(db, scope).values()))
    details: dict[ServiceRef, ServiceDetails] = {}

    def load_details() -> Iterator[None]:
        for ref in itertools.chain(refs, *listeners):
            if ref not in details and (s := service(db, ref)) is not None:
                details[ref] = service_details(db, s)
            yield

    await collect_all(load_details())
    merged = dict(
        await collect_all(
            (ref.hostname, merged_rule(db, merged_rule_key(db, scope.namespace, ref, labels))) for ref in refs
        )
    )
    rules = {
        host: (rule, first)
        for host, rule in merged.items()
        if rule is not None and (first := _first_source(db, rule)) is not None
    }
    mode = outbound_traffic_policy(db, scope).mode
    head = {
        "version": sources.fleet.version,
        "name": scope.sidecar.name if scope.sidecar is not None else _DEFAULT,
        "namespace": scope.namespace,
        "outboundTrafficPolicy": None if is_gateway else {"mode": mode} if mode != _REGISTRY_ONLY else {},
        "sidecar": to_builtins(find_sidecar(db, scope.sidecar)),
    }
    version, domain = _rule_version(db), db.settings.registry.domain

    def make() -> dict[str, Any]:
        def services(group: list[ServiceRef]) -> Iterator[dict[str, Any]]:
            return (show_service(details[ref]) for ref in group if ref in details)

        return head | {
            "services": services(refs),
            "egressListenerServices": [None] if is_gateway else [services(of) for of in listeners],
            "servicesByHostname": LazyFields(
                (ref.hostname, show_service(details[ref])) for ref in refs if ref in details
            ),
            "destinationRules": LazyFields(
                (host, [_show_rule(rule, first, version, domain)]) for host, (rule, first) in rules.items()
            ),
        }

    return Later(make)


def _first_source(db: Mesh, rule: MergedRule) -> Object[DestinationRule] | None:
    """Return the oldest source of a merged rule, which determines its name. Return None if the source was deleted."""
    return DESTINATION_RULE.table(db).peek(rule.key)


def _rule_version(db: Mesh) -> str:
    """Return the API version of DestinationRules."""
    return DESTINATION_RULE.versions[0]


def _show_rule(rule: MergedRule, first: Object[DestinationRule], version: str, domain: str) -> dict[str, Any]:
    """Return the merged rule of a host in istiod's format. Metadata that is not stored is empty."""
    group, kind = first.kind
    shown = {
        "type": {"group": group, "version": version, "kind": kind},
        "uid": "",
        "name": first.name,
        "namespace": first.namespace,
        "domain": domain,
        "resourceVersion": "",
        "creationTimestamp": first.created or ZERO_TIME,
        "generation": 0,
        "Spec": to_builtins(rule.spec),
        "Status": {},
        "Extra": None,
    }
    sources = [{"Namespace": key.namespace, "Name": key.name} for key in rule.sources]
    return {"exportTo": {name: {} for name in sorted(rule.spec.export_to)}, "from": sources, "rule": shown}
