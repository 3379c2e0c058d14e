"""Everything about one service: its health, callers, routes, rules, endpoints and recent problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from pilot.config.builtins import to_builtins
from pilot.config.kinds.istio import AUTHORIZATION_POLICY, DESTINATION_RULE, PEER_AUTHENTICATION, SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.virtual_service import Destination, HTTPRoute, StringMatch, TCPRoute, TLSRoute
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef, plain_problem
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule, dry_run
from pilot.debug.dashboard.mesh import (
    USABLE,
    MeshContext,
    MeshGraph,
    ServiceFacts,
    access_of,
    links_of_route,
    plain_ref,
    route_keys,
    service_facts,
    service_policies,
    written_by,
)
from pilot.debug.page import Refused
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.lib.labels import cut
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.model.service import Registry, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service
from pilot.mesh.security.policies import policy_keys, policy_label_keys
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import inbound_merged_rule_key, merged_rule
from pilot.mesh.traffic.virtual_services import ViewerKey, virtual_service, virtual_services_of

MAX_ENDPOINTS, MAX_ROUTES, MAX_RULES, MAX_ITEMS = 200, 50, 50, 20
"""Maximum numbers of endpoints, of VirtualServices, of rules of an object, and of items of a rule."""
Plain = dict[str, Any]
_UNPROTECTED = frozenset({"DISABLE", "SIMPLE"})
"""TLS modes of clients that a server with STRICT mutual TLS rejects."""


class Reason(NamedTuple):
    """A reason for which requests to a service may fail. `severity` is "error" or "warning"."""

    severity: str
    text: str
    object: ObjectRef | None = None

    def plain(self) -> Plain:
        """Return the reason as a JSON object."""
        return {
            "severity": self.severity,
            "text": self.text,
            "object": plain_ref(self.object) if self.object is not None else None,
        }


async def describe_service(sources: Sources, graph: MeshGraph, context: MeshContext, ref: ServiceRef) -> Plain:
    """Return everything about a service as a JSON object. Raise Refused if it does not exist."""
    db = sources.db
    target, facts = service(db, ref), service_facts(db, ref)
    if target is None or facts is None:
        raise Refused(404, f"service {ref.hostname} does not exist in namespace {ref.namespace}\n")
    hosts = {other.host: other for other in graph.services}
    applied = set(virtual_services_of(db, ref.hostname, ref.namespace, ViewerKey(ref.namespace)))
    reaching = await collect_present(
        key if key in applied or any(link.target == ref.hostname for link in links_of_route(db, key)) else None
        for key in route_keys(db)
    )
    routes = await collect_present(_route(db, key, key in applied, hosts) for key in reaching[:MAX_ROUTES])
    policies = service_policies(db, target)
    rules = _destination_rules(db, target)
    proxies = await _proxies_by_ip(sources)
    problems = [p for p, of in context.problems if ref.hostname in of or _is_about(p.object, facts)]
    peer_policies = _peer_authentications(db, target)
    reasons = [
        *_endpoint_reasons(facts, target),
        *_proxy_reasons(context, ref),
        *_route_reasons(routes),
        *_tls_reasons(facts, rules, peer_policies),
        *_access_reasons(policies),
    ]
    return {
        "host": ref.hostname,
        "namespace": ref.namespace,
        "registry": target.registry,
        "source": plain_ref(_declaration(target)),
        "resolution": target.resolution,
        "addresses": target.addresses[:MAX_ITEMS],
        "ports": [{"number": p.number, "name": p.name, "protocol": p.protocol.name} for p in target.ports[:MAX_ITEMS]],
        "ready": facts.ready,
        "total": facts.total,
        "mtls": facts.mtls,
        "mtlsBy": [plain_ref(ObjectRef(PEER_AUTHENTICATION.id, *key)) for key in peer_policies],
        "access": facts.access,
        "accounts": facts.accounts,
        "callers": [
            {
                "namespace": c.namespace,
                "account": c.account,
                "by": plain_ref(ObjectRef(AUTHORIZATION_POLICY.id, *c.policy)),
            }
            for c in facts.callers[:MAX_RULES]
        ],
        "policies": [show_policy(row) for row in policies[:MAX_RULES]],
        "routes": [route["shown"] for route in routes],
        "rules": rules,
        "endpoints": await collect_all(islice(_endpoints(db, target, proxies), MAX_ENDPOINTS)),
        "reasons": [reason.plain() for reason in reasons],
        "problems": [plain_problem(p) for p in problems[:MAX_RULES]],
    }


def _declaration(target: Service) -> ObjectRef:
    """Return the object that declares a service."""
    kind = SERVICE if target.registry is Registry.KUBERNETES else SERVICE_ENTRY
    return ObjectRef(kind.id, *target.source)


def _is_about(ref: ObjectRef, facts: ServiceFacts) -> bool:
    """Return whether an object has the name and the namespace of a service."""
    return ref.namespace == facts.namespace and ref.name == facts.host.partition(".")[0]


# -- endpoints ---------------------------------------------------------------------------------------------------------


async def _proxies_by_ip(sources: Sources) -> Mapping[str, ConnectedProxy]:
    pairs = ((ip, connection) for connection in sources.fleet.connections() for ip in connection.proxy.ips[:MAX_ITEMS])
    return dict(await collect_all(pairs))


def _endpoints(db: Mesh, target: Service, proxies: Mapping[str, ConnectedProxy]) -> Iterator[Plain]:
    for e in endpoints(db, target.ref, target.ports[0].number) if target.ports else ():
        proxy = proxies.get(e.addresses[0]) if e.addresses else None
        labels = dict(e.labels)
        yield {
            "address": e.addresses[0] if e.addresses else "",
            "port": e.port,
            "health": e.health,
            "ready": e.health in USABLE,
            "workload": e.workload,
            "version": labels.get("version", ""),
            "locality": str(e.locality),
            "proxy": proxy.id if proxy is not None else "",
            "inMesh": e.tls_mode == "istio" or e.hbone,
        }


def _endpoint_reasons(facts: ServiceFacts, target: Service) -> Iterator[Reason]:
    if not target.ports:
        yield Reason("warning", "It has no ports.", _declaration(target))
    elif not facts.total:
        yield Reason(
            "error", "It has no endpoints: no Pod matches its selector, or none is running.", _declaration(target)
        )
    elif facts.is_unready:
        yield Reason("error", f"None of its {facts.total} endpoints is ready.", _declaration(target))
    elif 0 < facts.ready < facts.total:
        yield Reason("warning", f"{facts.total - facts.ready} of its {facts.total} endpoints are not ready.")


def _proxy_reasons(context: MeshContext, ref: ServiceRef) -> Iterator[Reason]:
    for state, text in (("refused", "refuse their configuration"), ("stale", "have not answered")):
        count = sum(proxy.state == state and ref in proxy.services for proxy in context.unhealthy)
        if count:
            yield Reason("error" if state == "refused" else "warning", f"{count} of its proxies {text}.")


# -- routes ------------------------------------------------------------------------------------------------------------


def _route(db: Mesh, key: ObjectKey, applies: bool, hosts: Mapping[str, ServiceFacts]) -> Plain | None:
    """Return a VirtualService for the page, with the reasons for which its destinations may fail."""
    row = virtual_service(db, key)
    if row is None:
        return None
    spec, by = row.spec, written_by(row)
    reasons: list[Reason] = []
    rules: list[Plain] = []
    for index, http in enumerate(spec.http[:MAX_RULES]):
        where = f"spec.http[{index}]"
        to = [_destination(db, d.destination, d.weight, hosts) for d in http.route[:MAX_ITEMS] if d.destination]
        if applies:
            reasons += _rule_reasons(by, where, to, http)
        rules.append(
            {
                "path": where,
                "match": [match_text(m) for m in http.match[:MAX_ITEMS]],
                "to": to,
                "action": action_text(http),
            }
        )
    layer4: tuple[tuple[str, tuple[TLSRoute | TCPRoute, ...]], ...] = (("tls", spec.tls), ("tcp", spec.tcp))
    for field, others in layer4:
        for index, rule in enumerate(others[:MAX_RULES]):
            to = [_destination(db, d.destination, d.weight, hosts) for d in rule.route[:MAX_ITEMS] if d.destination]
            ports = [f"port {m.port}" if m.port else "any port" for m in rule.match[:MAX_ITEMS]]
            rules.append({"path": f"spec.{field}[{index}]", "match": ports, "to": to, "action": ""})
    shown = {
        "object": plain_ref(by),
        "applies": applies,
        "hosts": spec.hosts[:MAX_ITEMS],
        "gateways": spec.gateways[:MAX_ITEMS],
        "rules": rules,
    }
    return {"shown": shown, "reasons": reasons}


def _destination(db: Mesh, d: Destination, weight: int, hosts: Mapping[str, ServiceFacts]) -> Plain:
    """Return a destination with the number of its ready endpoints, and the fault that it has, or "" if it has none."""
    facts = hosts.get(d.host)
    shown: Plain = {"host": d.host, "subset": d.subset, "weight": weight, "fault": ""}
    if facts is None:
        return shown | {"fault": "the host does not exist"}
    ref = ServiceRef(facts.host, facts.namespace)
    ready, total = facts.ready, facts.total
    if d.subset:
        rule = merged_rule(db, inbound_merged_rule_key(db, facts.namespace, ref))
        subset = next((s for s in rule.spec.subsets if s.name == d.subset), None) if rule is not None else None
        if subset is None:
            return shown | {"namespace": facts.namespace, "fault": f"no DestinationRule has the subset {d.subset}"}
        chosen = [e for e in _first_port(db, ref) if subset.labels.items() <= dict(e.labels).items()]
        ready, total = sum(e.health in USABLE for e in chosen), len(chosen)
    fault = "" if total < 0 or ready else "no endpoint is ready" if total else "it has no endpoints"
    return shown | {"namespace": facts.namespace, "ready": ready, "total": total, "fault": fault}


def _first_port(db: Mesh, ref: ServiceRef) -> tuple[Endpoint, ...]:
    target = service(db, ref)
    return endpoints(db, ref, target.ports[0].number) if target is not None and target.ports else ()


def _rule_reasons(by: ObjectRef, where: str, to: list[Plain], http: HTTPRoute) -> Iterator[Reason]:
    for d in to:
        if d["fault"] and (d["weight"] or len(to) == 1):
            name = d["host"] + (f", subset {d['subset']}" if d["subset"] else "")
            share = f"{d['weight']} % of its requests" if d["weight"] and len(to) > 1 else "its requests"
            yield Reason("error", f"{where} sends {share} to {name}: {d['fault']}.", by)
    if http.fault is not None and http.fault.abort is not None:
        yield Reason("warning", f"{where} {action_text(http).partition('; ')[0]}.", by)


def _route_reasons(routes: Iterable[Plain]) -> list[Reason]:
    return [reason for route in routes for reason in route["reasons"]]


def match_text(m: Any) -> str:
    """Return a match condition as text."""
    parts = [m.method and f"{string_text(m.method)}", m.uri and f"path {string_text(m.uri)}"]
    parts += [m.authority and f"host {string_text(m.authority)}", m.port and f"port {m.port}"]
    parts += [f"header {name} {string_text(value)}" for name, value in islice(m.headers.items(), MAX_ITEMS)]
    parts += [f"without header {name} {string_text(value)}" for name, value in islice(m.without_headers.items(), 5)]
    parts += [f"query {name} {string_text(value)}" for name, value in islice(m.query_params.items(), MAX_ITEMS)]
    parts += [f"from {name}={value}" for name, value in islice(m.source_labels.items(), MAX_ITEMS)]
    parts += [m.source_namespace and f"from namespace {m.source_namespace}"]
    parts += [m.gateways and f"at gateway {', '.join(m.gateways[:MAX_ITEMS])}"]
    return " and ".join(part for part in parts if part) or "every request"


def string_text(match: StringMatch) -> str:
    """Return a condition on a string as text."""
    if match.prefix is not None:
        return f"{match.prefix}*"
    return f"~ {match.regex}" if match.regex is not None else match.exact or "present"


def action_text(http: HTTPRoute) -> str:
    """Return what a route does besides choosing a destination."""
    parts = []
    if http.fault is not None and http.fault.abort is not None:
        abort = http.fault.abort
        share = f"{abort.percentage.value:g} % of the requests" if abort.percentage is not None else "every request"
        parts.append(f"aborts {share} with {abort.http_status or abort.grpc_status or 'an error'}")
    if http.fault is not None and http.fault.delay is not None:
        parts.append(f"delays requests by {http.fault.delay.fixed_delay}")
    if http.redirect is not None:
        parts.append(f"redirects to {http.redirect.authority}{http.redirect.uri}")
    if http.direct_response is not None:
        parts.append(f"answers {http.direct_response.status}")
    if http.delegate is not None:
        parts.append(f"delegates to {http.delegate.namespace}/{http.delegate.name}")
    if http.rewrite is not None and (http.rewrite.uri or http.rewrite.authority):
        parts.append(f"rewrites to {http.rewrite.authority}{http.rewrite.uri}")
    if http.timeout is not None:
        parts.append(f"timeout {http.timeout}")
    if http.retries is not None:
        parts.append(f"{http.retries.attempts} retries")
    if http.mirror is not None or http.mirrors:
        first = http.mirror or http.mirrors[0].destination
        parts.append(f"mirrors to {first.host if first is not None else ''}")
    return "; ".join(parts)


# -- rules and policies ------------------------------------------------------------------------------------------------


def _destination_rules(db: Mesh, target: Service) -> list[Plain]:
    """Return the DestinationRules of a service, with the number of ready endpoints of each subset."""
    keys = inbound_merged_rule_key(db, target.namespace, target.ref)
    every = _first_port(db, target.ref)
    shown = []
    for key in keys[:MAX_RULES]:
        row = DESTINATION_RULE.get(db, key)
        if row is None:
            continue
        policy = row.spec.traffic_policy
        subsets = []
        for subset in row.spec.subsets[:MAX_ITEMS]:
            chosen = [e for e in every if subset.labels.items() <= dict(e.labels).items()]
            ready = sum(e.health in USABLE for e in chosen)
            subsets.append({"name": subset.name, "labels": subset.labels, "ready": ready, "total": len(chosen)})
        shown.append(
            {
                "object": plain_ref(written_by(row)),
                "tls": policy.tls.mode if policy is not None and policy.tls is not None else "",
                "policy": to_builtins(policy) if policy is not None else {},
                "subsets": subsets,
            }
        )
    return shown


def _peer_authentications(db: Mesh, target: Service) -> tuple[ObjectKey, ...]:
    first = _first_port(db, target.ref)[:1]
    labels = cut(dict(first[0].labels), policy_label_keys(db, target.namespace)) if first else frozenset()
    subject = PolicySubjectKey(target.namespace, labels, frozenset())
    return policy_keys(db, PEER_AUTHENTICATION.id.name, subject)


def _tls_reasons(facts: ServiceFacts, rules: list[Plain], by: tuple[ObjectKey, ...]) -> Iterator[Reason]:
    if facts.mtls != "STRICT":
        return
    server = f" (PeerAuthentication {by[-1].namespace}/{by[-1].name})" if by else ""
    for rule in rules:
        if rule["tls"] in _UNPROTECTED:
            ref = rule["object"]
            text = (
                f"Clients do not use the mesh's mutual TLS (DestinationRule {ref['namespace']}/{ref['name']}, "
                f"tls mode {rule['tls']}), and the service requires it{server}."
            )
            yield Reason("error", text, ObjectRef(DESTINATION_RULE.id, ref["namespace"], ref["name"]))


def _access_reasons(policies: list[Object[AuthorizationPolicy]]) -> Iterator[Reason]:
    if access_of(policies) != "closed":
        return
    for row in policies:
        if row.spec.action == "DENY" or not row.spec.rules:
            text = f"AuthorizationPolicy {row.namespace}/{row.name} admits nobody: callers get status 403."
            yield Reason("error", text, row.ref)
            return


def show_policy(row: Object[AuthorizationPolicy]) -> Plain:
    """Return an AuthorizationPolicy with its rules as text."""
    return {
        "object": plain_ref(row.ref),
        "action": row.spec.action,
        "dryRun": bool(dry_run(row.annotations)),
        "rules": [show_rule(rule) for rule in row.spec.rules[:MAX_RULES]],
    }


def show_rule(rule: Rule) -> Plain:
    """Return the conditions of a rule as text. An empty list means that there is no condition."""
    return {
        "from": [text for origin in rule.from_[:MAX_ITEMS] if (text := _fields_text(to_builtins(origin.source)))],
        "to": [text for to in rule.to[:MAX_ITEMS] if (text := _fields_text(to_builtins(to.operation)))],
        "when": [
            f"{c.key} = {', '.join(c.values[:MAX_ITEMS])}"
            if c.values
            else f"{c.key} ≠ {', '.join(c.not_values[:MAX_ITEMS])}"
            for c in rule.when[:MAX_ITEMS]
        ],
    }


_WORDS = {
    "principals": "principal",
    "namespaces": "namespace",
    "serviceAccounts": "service account",
    "requestPrincipals": "token of",
    "ipBlocks": "address",
    "remoteIpBlocks": "client address",
    "trustDomains": "trust domain",
    "hosts": "host",
    "ports": "port",
    "methods": "method",
    "paths": "path",
}


def _fields_text(fields: Mapping[str, Any] | None) -> str:
    parts = []
    for name, values in (fields or {}).items():
        positive = name.removeprefix("not")
        word = positive[:1].lower() + positive[1:]
        listed = ", ".join(map(str, values[:MAX_ITEMS])) + (" …" if len(values) > MAX_ITEMS else "")
        parts.append(f"{'not ' if positive != name else ''}{_WORDS.get(word, word)} {listed}")
    return " and ".join(parts)
