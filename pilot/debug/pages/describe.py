"""The debug page describe, which summarises a proxy's services, routes, rules and policies."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pilot.config.object import ObjectKey
from pilot.config.problem import Problem, Severity
from pilot.debug.hidden_services import effect_on_proxy
from pilot.debug.page import Query, requested_connection
from pilot.debug.pages.rejections import explain_problems, explain_rejections, show_problem
from pilot.debug.silence import describe_silence
from pilot.debug.slices import collect_present
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.envoy.listener.inbound.inbound_chain_keys import accepted_mtls
from pilot.mesh.analysis.nack import REJECTED
from pilot.mesh.gateways.gateways import gateway_selection_key
from pilot.mesh.model.facets import ServiceTarget
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.classify import inbound_facet
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.security.policies import proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import nacks_of
from pilot.mesh.traffic.destination_rules import inbound_merged_rule_key, merged_rule
from pilot.mesh.traffic.virtual_services import ViewerKey, virtual_services_for, virtual_services_of

Plain = dict[str, Any]
MAX_PROBLEMS = 20
_WORST_FIRST = tuple(Severity)


async def describe(sources: Sources, query: Query) -> Any:
    """Return the policies of the proxy, its services with their routes and rules, and what it rejects.

    For a router, return its Gateways and their VirtualServices in place of services.
    """
    db, connection = sources.db, requested_connection(sources, query)
    node_id, proxy = connection.proxy_key, connection.proxy
    head = {
        "proxy": proxy.id,
        "type": str(proxy.type),
        "version": proxy.version,
        "namespace": proxy.namespace,
        "labels": _labels(db, connection),
        "rejections": [rejection.text for rejection in await explain_rejections(sources, connection)],
        "silence": describe_silence(connection, time.time()),
    }
    applied = proxy_policies(db, node_id).applied
    policies = {kind: _names(keys) for kind, keys in applied}
    effect = effect_on_proxy(db, node_id)
    if proxy.type is NodeType.ROUTER:
        gateways = [_gateway(db, connection, key) for key in gateway_selection_key(db, node_id).gateways]
        body: Plain = {"gateways": gateways}
        objects = {("Gateway", one["gateway"]) for one in gateways}
        objects |= {("VirtualService", name) for one in gateways for name in one["virtualServices"]}
    else:
        services = [_service(db, connection, target) for target in service_targets(db, node_id)]
        body = {"services": services, "sidecar": effect.plain() if effect is not None else None}
        objects = {("VirtualService", name) for one in services for name in one["virtualServices"]}
        objects |= {("DestinationRule", name) for one in services for name in one["destinationRules"]}
    objects |= {(kind, name) for kind, names in policies.items() for name in names}
    problems: list[Problem] = await collect_present(
        p
        if (p.object.kind.name, f"{p.object.namespace}/{p.object.name}") in objects
        and not (p.code == REJECTED and any(nack.proxy == proxy.id for nack in nacks_of(db, p.object)))
        else None
        for p in sources.problems()
    )
    problems.sort(key=lambda problem: _WORST_FIRST.index(problem.severity))
    shown = [show_problem(sources, p) for p in await explain_problems(sources, problems[:MAX_PROBLEMS])]
    return {**head, **body, "policies": policies, "problems": shown}


def _service(db: Mesh, connection: ConnectedProxy, target: ServiceTarget) -> Plain:
    """Return a service port of the proxy, as clients in the proxy's namespace see it."""
    namespace, labels = connection.proxy.namespace, proxy_labels(db, connection.proxy_key)
    rules = inbound_merged_rule_key(db, namespace, target.ref)
    merged = merged_rule(db, rules)
    subsets = merged.spec.subsets if merged is not None else ()
    mode = accepted_mtls(db, inbound_facet(db, connection.proxy_key)).at(target.target_port)
    return {
        "host": target.ref.hostname,
        "port": target.port.number,
        "name": target.port.name,
        "protocol": target.port.protocol.name,
        "targetPort": target.target_port,
        "mutualTls": mode,
        "virtualServices": _names(
            virtual_services_of(db, target.ref.hostname, target.ref.namespace, ViewerKey(namespace))
        ),
        "destinationRules": _names(rules),
        "subsets": [s.name for s in subsets if s.labels.items() <= labels.items()],
    }


def _gateway(db: Mesh, connection: ConnectedProxy, key: ObjectKey) -> Plain:
    virtual_services = virtual_services_for(db, connection.proxy.namespace, f"{key.namespace}/{key.name}")
    return {"gateway": f"{key.namespace}/{key.name}", "virtualServices": _names(virtual_services)}


def _names(keys: Iterable[ObjectKey]) -> list[str]:
    return [f"{key.namespace}/{key.name}" for key in keys]


def _labels(db: Mesh, connection: ConnectedProxy) -> Plain:
    return dict(sorted(proxy_labels(db, connection.proxy_key).items()))
