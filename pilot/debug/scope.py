"""What a proxy sees of the mesh: sidecarz."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pilot.config.builtins import to_builtins
from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.object import Object
from pilot.debug.page import Later, Query, asked_connection
from pilot.debug.plain_json import LazyFields
from pilot.debug.registry import ZERO_TIME, LookedUp, look_up, show_service
from pilot.debug.slices import all_of
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
"""What proto JSON leaves out, for it is the first of its enumeration."""


async def sidecarz(sources: Sources, query: Query) -> Any:
    """Returns the scope of proxyID: which Sidecar applies, what it imports listener by listener, and what happens to the rest."""
    db = sources.db
    connection = asked_connection(sources, query)
    node_id, is_gateway = connection.proxy_key, connection.proxy.type is NodeType.ROUTER
    scope, labels = scope_of(db, node_id), outbound_facet(db, node_id).labels
    indexes = range(len(egress_listeners(db, scope)))
    listeners = [await all_of(i.ref for i in tuple(egress_services(db, scope, index))) for index in indexes]
    refs = await all_of(imported.ref for imported in tuple(scope_services(db, scope).values()))
    known: dict[ServiceRef, LookedUp] = {}

    def look_up_all() -> Iterator[None]:
        for ref in itertools.chain(refs, *listeners):
            if ref not in known and (s := service(db, ref)) is not None:
                known[ref] = look_up(db, s)
            yield

    await all_of(look_up_all())
    merged = dict(
        await all_of((ref.hostname, merged_rule(db, merged_rule_key(db, scope.namespace, ref, labels))) for ref in refs)
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
        def services(of: list[ServiceRef]) -> Iterator[dict[str, Any]]:
            return (show_service(known[ref]) for ref in of if ref in known)

        return head | {
            "services": services(refs),
            "egressListenerServices": [None] if is_gateway else [services(of) for of in listeners],
            "servicesByHostname": LazyFields((ref.hostname, show_service(known[ref])) for ref in refs if ref in known),
            "destinationRules": LazyFields(
                (host, [_show_rule(rule, first, version, domain)]) for host, (rule, first) in rules.items()
            ),
        }

    return Later(make)


def _first_source(db: Mesh, rule: MergedRule) -> Object[DestinationRule] | None:
    """Returns the oldest of the objects that a rule is merged from, by whose name it goes; None where that is gone."""
    return DESTINATION_RULE.table(db).peek(rule.key)


def _rule_version(db: Mesh) -> str:
    """Returns the API version by which DestinationRules are shown."""
    return DESTINATION_RULE.versions[0]


def _show_rule(rule: MergedRule, first: Object[DestinationRule], version: str, domain: str) -> dict[str, Any]:
    """Returns the rules of a host as one, in istiod's words. What is not kept of their metadata is empty."""
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
