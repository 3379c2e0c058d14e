"""Everything about one service: its health, callers, routes, rules, endpoints and recent problems."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from pilot.config.builtins import to_builtins
from pilot.config.kinds.istio import DESTINATION_RULE, PEER_AUTHENTICATION, SERVICE_ENTRY, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, SERVICE
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.kubernetes.service import Service as KubernetesService
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef, Problem, plain_ref
from pilot.config.security.authorization_policy import AuthorizationPolicy, dry_run
from pilot.debug.dashboard.callers import list_callers
from pilot.debug.dashboard.mesh import (
    FAILING,
    USABLE,
    MeshContext,
    MeshGraph,
    ServiceFacts,
    access_of,
    links_of_route,
    route_keys,
    service_facts,
    service_policies,
    workload_labels,
    written_by,
)
from pilot.debug.dashboard.service_routes import (
    MAX_RULES,
    Plain,
    ServiceReason,
    count_subset,
    first_port_endpoints,
    list_routes,
)
from pilot.debug.hidden_services import HidingSidecar, effects_on_service
from pilot.debug.page import Refused
from pilot.debug.pages.rejections import (
    explain_problems,
    explain_rejection,
    explain_rejections,
    last_change,
    show_problem,
)
from pilot.debug.required_identity import identity_policies
from pilot.debug.rule_text import MAX_ITEMS, show_rule
from pilot.debug.silence import describe_silence
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.debug.terms import endpoint_word, first_names, not_responding, rejects
from pilot.lib.labels import cut as cut_labels
from pilot.lib.suggestion import closest
from pilot.mesh.analysis.nack import REJECTED, likely_causes
from pilot.mesh.analysis.opaque_port import failure_of
from pilot.mesh.analysis.selector import format_labels, label_sets
from pilot.mesh.analysis.service import lacks_port
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.model.service import Registry, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.security.policies import policy_keys, policy_label_keys
from pilot.mesh.tables.clusters import service_clusters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import nacks_of
from pilot.mesh.traffic.destination_rules import inbound_merged_rule_key
from pilot.mesh.traffic.virtual_services import ViewerKey, virtual_service, virtual_services_of

MAX_ENDPOINTS = 200
"""Maximum number of endpoints that are listed."""
MAX_COMPARED = 1000
"""Maximum number of services of a namespace whose names are compared with that of an unknown service."""
MAX_REJECTING = 3
"""Maximum number of the service's own proxies whose rejections are listed, and of others that are explained."""
_RULE_PARTS = {"from": "from", "to": "to", "when": "if"}
"""The word before each part of a rule in a sentence."""
_UNPROTECTED = frozenset({"DISABLE", "SIMPLE"})
"""TLS modes of clients that a server with STRICT mutual TLS rejects."""


async def describe_service(sources: Sources, graph: MeshGraph, context: MeshContext, ref: ServiceRef) -> Plain:
    """Return everything about a service as a JSON object. Raise Refused if it does not exist."""
    db = sources.db
    target, facts = service(db, ref), service_facts(db, ref)
    if target is None or facts is None:
        raise Refused(404, _unknown(db, ref))
    hosts = {other.host: other for other in graph.services}
    applied = set(virtual_services_of(db, ref.hostname, ref.namespace, ViewerKey(ref.namespace)))
    reaching = await collect_present(
        key if key in applied or any(link.target == ref.hostname for link in links_of_route(db, key)) else None
        for key in route_keys(db)
    )
    routes = await list_routes(db, target, reaching, applied, hosts)
    policies = service_policies(db, target)
    rules = _destination_rules(db, target)
    proxies = await _proxies_by_ip(sources)
    peer_policies = _peer_authentications(db, target)
    built_from = dict.fromkeys([_declaration(target), *_written(db, applied), *map(_rule_ref, rules)])
    related = {*built_from, *(row.ref for row in policies), *_peer_refs(peer_policies)}
    problems = [
        p
        for p, of in context.problems
        if ref.hostname in of or _is_about(p.object, facts) or p.object in related
        if not (p.code == REJECTED and p.object in built_from and nacks_of(db, p.object))  # they are reasons
    ]
    reasons = [
        *_endpoint_reasons(db, facts, target),
        *_proxy_reasons(context, ref, await _unhealthy_proxies(sources, target, proxies)),
        *await _rejections(sources, built_from),
        *(reason for route in routes for reason in route.reasons if not _is_reported(reason, problems)),
        *_tls_reasons(facts, rules, peer_policies),
        *_access_reasons(policies),
    ]
    shown = await collect_all(islice(_endpoints(db, target, proxies), MAX_ENDPOINTS))
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
        "mtlsBy": [plain_ref(peer) for peer in _peer_refs(peer_policies)],
        "access": facts.access,
        "accounts": facts.accounts,
        "callers": [caller.plain() for caller in list_callers(policies)],
        "hiddenBy": [_plain_hiding(sources, one) for one in await effects_on_service(sources, ref)],
        "policies": [show_policy(row) for row in policies[:MAX_RULES]],
        "identityBy": [plain_ref(row.ref) for row in identity_policies(policies)[:MAX_RULES]],
        "routes": [route.shown for route in routes],
        "rules": rules,
        "endpoints": shown,
        "connected": sum(bool(one["proxy"]) for one in shown),
        "reasons": [_plain_reason(sources, reason) for reason in reasons],
        "problems": [show_problem(sources, p) for p in await explain_problems(sources, problems[:MAX_RULES])],
    }


def _is_reported(reason: ServiceReason, problems: Iterable[Problem]) -> bool:
    """Return whether a problem reports the destination that is the reason."""
    of_object = (p for p in problems if p.object == reason.object and p.code in FAILING)
    return bool(reason.path) and any(p.path.startswith(f"{reason.path}.") for p in of_object)


def _plain_reason(sources: Sources, reason: ServiceReason) -> Plain:
    """Return a reason as a JSON object, with the Unix time of the last change of its object, or 0.0 if unknown."""
    return reason.plain() | {"changed": last_change(sources, reason.object) if reason.object is not None else 0.0}


def _plain_hiding(sources: Sources, one: HidingSidecar) -> Plain:
    """Return a Sidecar that hides the service as a JSON object, with the Unix time of its last change, or 0.0."""
    return one._asdict() | {"sidecar": plain_ref(one.sidecar), "changed": last_change(sources, one.sidecar)}


def _unknown(db: Mesh, ref: ServiceRef) -> str:
    """Return the message about a service that does not exist. It names the routes for its host, or a similar name."""
    text = f"service {ref.hostname} does not exist in namespace {ref.namespace}"
    routes = sorted(VIRTUAL_SERVICE.keys(db, "host", ref.hostname))[:MAX_ITEMS]
    if routes:
        names = ", ".join(f"{key.namespace}/{key.name}" for key in routes)
        return f"{text}; the host has routes of VirtualService {names}: see pilotctl problems and pilotctl history\n"
    name = ref.hostname.partition(".")[0]
    others = list(islice((other for other in service_refs(db) if other.namespace != ref.namespace), MAX_COMPARED))
    elsewhere = [other for other in others if name == _short_name(other) or other.hostname == ref.hostname]
    if elsewhere:
        return f"{text}, but in {elsewhere[0].namespace}: use {_argument(elsewhere[0])}\n"
    here = list(islice((other for other in service_refs(db) if other.namespace == ref.namespace), MAX_COMPARED))
    longer = [
        _argument(o) for o in (*here, *others) if o.hostname.startswith(f"{ref.hostname}.") and not _short_name(o)
    ]
    if longer:
        return f"{text}; did you mean {' or '.join(longer[:MAX_REJECTING])}?\n"
    arguments = {_short_name(other) or other.hostname: _argument(other) for other in here}
    similar = closest(name, arguments) or closest(ref.hostname, arguments)
    return f"{text}{f'; did you mean {arguments[similar]}?' if similar else ''}\n"


def _short_name(ref: ServiceRef) -> str:
    """Return the name of a Kubernetes Service, or "" for the host of a ServiceEntry."""
    name, _, rest = ref.hostname.partition(".")
    return name if rest.startswith(f"{ref.namespace}.svc.") else ""


def _argument(ref: ServiceRef) -> str:
    """Return the argument of `pilotctl describe` that names a service."""
    name = _short_name(ref)
    return f"svc/{name}.{ref.namespace}" if name else shlex.quote(f"svc/{ref.namespace}/{ref.hostname}")


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
    unready = _unready_conditions(db, target)
    for e in endpoints(db, target.ref, target.ports[0].number) if target.ports else ():
        proxy = proxies.get(e.addresses[0]) if e.addresses else None
        labels = dict(e.labels)
        condition = unready.get(e.addresses[0], "") if e.addresses else ""
        yield {
            "address": e.addresses[0] if e.addresses else "",
            "port": e.port,
            "ready": e.health in USABLE,
            "state": endpoint_word(e.health, condition),
            "condition": condition,
            "workload": e.workload,
            "version": labels.get("version", ""),
            "locality": str(e.locality),
            "proxy": proxy.id if proxy is not None else "",
            "inMesh": e.tls_mode == "istio" or e.hbone,
        }


def _unready_conditions(db: Mesh, target: Service) -> Mapping[str, str]:
    """Return the conditions of the EndpointSlices' endpoints that are not ready, by address."""
    conditions = {}
    for row in _slices(db, target):
        for endpoint in row.spec.endpoints:
            if endpoint.conditions.ready is False:
                values = to_builtins(endpoint.conditions)
                text = ", ".join(f"{name}: {str(value).lower()}" for name, value in values.items())
                conditions.update(dict.fromkeys(endpoint.addresses, text))
    return conditions


def _slices(db: Mesh, target: Service) -> list[Object[EndpointSlice]]:
    keys = ENDPOINT_SLICE.keys(db, "service", target.source) if target.registry is Registry.KUBERNETES else ()
    return [row for key in sorted(keys) if (row := ENDPOINT_SLICE.get(db, key)) is not None]


async def _unhealthy_proxies(
    sources: Sources, target: Service, proxies: Mapping[str, ConnectedProxy]
) -> dict[str, list[ServiceReason]]:
    """Return what the first of the service's proxies reject, and which of them are not responding, by the state."""
    first = endpoints(sources.db, target.ref, target.ports[0].number)[:MAX_ENDPOINTS] if target.ports else ()
    own = {c.id: c for e in first for address in e.addresses[:1] if (c := proxies.get(address)) is not None}
    rejecting = [c for c in own.values() if any(watch.last_error for watch in c.subscriptions.values())]
    now = time.time()
    silent = [(c, text) for c in own.values() if c not in rejecting and (text := describe_silence(c, now))]
    return {
        "refused": [
            ServiceReason(
                "error", f"{c.proxy.id} {rejection.text_of_object}", next(iter(rejection.causes), None), is_own=True
            )
            for c in rejecting[:MAX_REJECTING]
            for rejection in await explain_rejections(sources, c)
        ],
        "stale": [ServiceReason("warning", f"{c.proxy.id} {text}.", is_own=True) for c, text in silent[:MAX_REJECTING]],
    }


def _endpoint_reasons(db: Mesh, facts: ServiceFacts, target: Service) -> Iterator[ServiceReason]:
    if not target.ports:
        yield ServiceReason("warning", "It has no ports.", _declaration(target))
    elif not facts.total:
        text = f"It has no endpoints, so {failure_of(target)}: {_why_empty(db, target)}."
        yield ServiceReason("warning", text, _declaration(target))
    elif facts.is_unready:
        yield ServiceReason("error", _unready_text(target, facts.total), _endpoints_object(db, target))
    elif 0 < facts.ready < facts.total:
        text = f"{facts.total - facts.ready} of its {facts.total} endpoints are not ready."
        yield ServiceReason("warning", text, _endpoints_object(db, target))


def _why_empty(db: Mesh, target: Service) -> str:
    """Return why a service has no endpoints."""
    if not target.selector:
        return "it has no selector, and no object lists endpoints of it"
    if not any(have.issuperset(target.selector) for have in label_sets(db, target.namespace)):
        return f"no workload matches its selector {format_labels(dict(target.selector))}"
    for row in _declared_services(db, target):
        if unknown := next((port for port in row.spec.first_ports if lacks_port(db, row, port)), None):
            return f"no container of the Pods that it selects has a port named {unknown.target_port}"
    return "workloads match its selector, but none is running"


def _declared_services(db: Mesh, target: Service) -> list[Object[KubernetesService]]:
    """Return the Services in all clusters that declare a service."""
    keys = (RegistryKey(cluster, *target.source) for cluster in service_clusters(db))
    return [row for key in keys if (row := SERVICE.get(db, key)) is not None]


def _endpoints_object(db: Mesh, target: Service) -> ObjectRef:
    """Return the first EndpointSlice of a service with an endpoint that is not ready, or else its declaration."""
    unready = (row.ref for row in _slices(db, target) if any(e.conditions.ready is False for e in row.spec.endpoints))
    return next(unready, _declaration(target))


def _unready_text(target: Service, total: int) -> str:
    text = "Its only endpoint is not ready" if total == 1 else f"None of its {total} endpoints is ready"
    return f"{text}, so {failure_of(target)}."


def _proxy_reasons(
    context: MeshContext, ref: ServiceRef, listed: Mapping[str, list[ServiceReason]]
) -> Iterator[ServiceReason]:
    """Yield the listed proxies that are unhealthy, or their number if there are more of them."""
    states = Counter(proxy.state for proxy in context.unhealthy if ref in proxy.services)
    if (count := states["refused"]) > len(listed["refused"]):
        yield ServiceReason("error", f"{count} of its proxies {rejects(count, ())}.", is_own=True)
    yield from listed["refused"]
    if (count := states["stale"]) > len(listed["stale"]):
        yield ServiceReason("warning", f"{count} of its proxies {not_responding(count)}.", is_own=True)
    yield from listed["stale"]


async def _rejections(sources: Sources, refs: Iterable[ObjectRef]) -> list[ServiceReason]:
    """Return the rejections of resources that were built from the objects of a service, each of them once."""
    reasons: list[ServiceReason] = []
    seen: set[tuple[str, str]] = set()
    for ref in refs:
        nacks = [
            nack
            for nack in nacks_of(sources.db, ref)
            if (nack.proxy, nack.type_name) not in seen and ref in likely_causes(nack.objects)
        ]
        seen.update((nack.proxy, nack.type_name) for nack in nacks)
        proxies: dict[tuple[str, str], list[str]] = {}
        for nack in nacks:
            proxies.setdefault((nack.type_name.lower(), nack.message), []).append(nack.proxy)
        for (name, message), names in proxies.items():
            is_explained = len(reasons) < MAX_REJECTING
            why = await explain_rejection(sources, ref, message) if is_explained else ""
            text = f"{first_names(names)} {rejects(len(names), (name,))}: {message}"
            reasons.append(ServiceReason("error", "; ".join(filter(None, (text, why))), ref))
    return reasons


def _written(db: Mesh, keys: Iterable[ObjectKey]) -> Iterator[ObjectRef]:
    """Yield the objects that users wrote for VirtualServices."""
    return (written_by(row) for key in sorted(keys) if (row := virtual_service(db, key)) is not None)


def _rule_ref(rule: Plain) -> ObjectRef:
    return ObjectRef(DESTINATION_RULE.id, rule["object"]["namespace"], rule["object"]["name"])


def _peer_refs(keys: Iterable[ObjectKey]) -> list[ObjectRef]:
    return [ObjectRef(PEER_AUTHENTICATION.id, *key) for key in keys]


# -- rules and policies ------------------------------------------------------------------------------------------------


def _destination_rules(db: Mesh, target: Service) -> list[Plain]:
    """Return the DestinationRules of a service, with the number of ready endpoints of each subset."""
    keys = inbound_merged_rule_key(db, target.namespace, target.ref)
    every = first_port_endpoints(db, target.ref)
    shown = []
    for key in keys[:MAX_RULES]:
        row = DESTINATION_RULE.get(db, key)
        if row is None:
            continue
        policy = row.spec.traffic_policy
        subsets = []
        for subset in row.spec.subsets[:MAX_ITEMS]:
            ready, total = count_subset(every, subset.labels)
            subsets.append({"name": subset.name, "labels": subset.labels, "ready": ready, "total": total})
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
    labels = cut_labels(workload_labels(db, target), policy_label_keys(db, target.namespace))
    subject = PolicySubjectKey(target.namespace, labels, frozenset())
    return policy_keys(db, PEER_AUTHENTICATION.id.name, subject)


def _tls_reasons(facts: ServiceFacts, rules: list[Plain], by: tuple[ObjectKey, ...]) -> Iterator[ServiceReason]:
    if facts.mtls != "STRICT":
        return
    server = f" (PeerAuthentication {by[-1].namespace}/{by[-1].name})" if by else ""
    for rule in rules:
        if rule["tls"] in _UNPROTECTED:
            ref = _rule_ref(rule)
            text = (
                f"Clients do not use the mesh's mutual TLS (DestinationRule {ref.namespace}/{ref.name}, "
                f"tls mode {rule['tls']}), and the service requires it{server}."
            )
            yield ServiceReason("error", text, ref)


def _access_reasons(policies: list[Object[AuthorizationPolicy]]) -> Iterator[ServiceReason]:
    """Yield the policy that admits nobody, or else the requests that policies deny."""
    if access_of(policies) == "closed":
        closing = next((row for row in policies if row.spec.action == "DENY" or not row.spec.rules), None)
        if closing is not None:
            text = f"AuthorizationPolicy {closing.namespace}/{closing.name} admits nobody: callers get status 403."
            yield ServiceReason("error", text, closing.ref)
        return
    for row in policies:
        if row.spec.action == "DENY" and not dry_run(row.annotations):
            for index, rule in enumerate(row.spec.rules[:MAX_RULES]):
                parts = show_rule(rule)
                words = (f" {word} {' or '.join(parts[part])}" for part, word in _RULE_PARTS.items() if parts[part])
                yield ServiceReason("info", f"spec.rules[{index}] denies requests{''.join(words)} with 403.", row.ref)


def show_policy(row: Object[AuthorizationPolicy]) -> Plain:
    """Return an AuthorizationPolicy with its rules as text."""
    return {
        "object": plain_ref(row.ref),
        "action": row.spec.action,
        "dryRun": bool(dry_run(row.annotations)),
        "rules": [show_rule(rule) for rule in row.spec.rules[:MAX_RULES]],
    }
