"""The mesh graph: namespaces, the services of one namespace, gateways, and who may call what and by which route."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, DESTINATION_RULE, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef, Problem, plain_ref
from pilot.config.security.authorization_policy import AuthorizationPolicy, Rule, Source, dry_run
from pilot.debug.required_identity import identity_policies
from pilot.debug.sources import Sources
from pilot.derive import derived
from pilot.lib.hosts import full_name
from pilot.lib.labels import cut
from pilot.lib.spiffe import parse_identity
from pilot.mesh.analysis.route_port import ignores_http
from pilot.mesh.gateways.gateways import gateway_selection_key
from pilot.mesh.model.endpoint import EndpointHealth
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Registry, Resolution, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import service
from pilot.mesh.security.mtls import mtls_mode
from pilot.mesh.security.policies import policy_keys, policy_label_keys
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import qualified

Access = Literal["open", "restricted", "closed"]
Level = Literal["bad", "warn", "ok"]
USABLE = frozenset({EndpointHealth.HEALTHY, EndpointHealth.UNKNOWN})
WITHOUT_ENDPOINTS = frozenset({Resolution.PASSTHROUGH, Resolution.ALIAS, Resolution.DYNAMIC_DNS})
"""Resolutions of services that have no endpoints of their own."""
MAX_ACCOUNTS, MAX_REFS = 5, 8
"""Maximum number of service accounts of a service, and of objects of a link."""
FAILING = frozenset({"destination-not-found", "subset-not-found"})
"""Codes of errors about routes that take effect, but make requests fail."""
_MESH = "mesh"
_BY_NAME = frozenset({"Service", "ServiceEntry", "VirtualService", "DestinationRule"})


class AdmittedCaller(NamedTuple):
    """A caller that an ALLOW policy admits. `account` is "" for all service accounts of the namespace."""

    namespace: str
    account: str
    policy: ObjectKey


class ServiceFacts(NamedTuple):
    """Facts about a service.

    `total` is the number of endpoints of the first port, of which `ready` are usable, or -1 if the service has no
    endpoints by design. `mtls` is the mode of the first endpoint, or "" if there is none. `needs_identity`
    says whether policies reject all callers without an identity. `access` is "open" if every
    caller is admitted, "restricted" if policies admit some, and "closed" if they admit nobody. `callers` are the
    admitted callers that can be named. `policies` are all policies that apply to the workloads.
    """

    namespace: str
    host: str
    registry: Registry
    ports: tuple[int, ...]
    ready: int
    total: int
    mtls: str
    needs_identity: bool
    access: Access
    callers: tuple[AdmittedCaller, ...]
    policies: tuple[tuple[str, ObjectKey], ...]
    accounts: tuple[str, ...]

    @property
    def is_unready(self) -> bool:
        """Return whether the service has endpoints, and none of them is usable."""
        return self.total > 0 and not self.ready

    def plain(self, health: Mapping[str, int]) -> dict[str, Any]:
        """Return the facts as a JSON object. `health` has the numbers of problems and of unhealthy proxies."""
        return {
            "namespace": self.namespace,
            "host": self.host,
            "registry": self.registry,
            "ports": self.ports,
            "ready": self.ready,
            "total": self.total,
            "mtls": self.mtls,
            "needsIdentity": self.needs_identity,
            "access": self.access,
            "policies": len(self.policies),
            **health,
        }


class Link(NamedTuple):
    """A route to a destination host.

    `source` is a gateway ("gateway NAMESPACE/NAME") or a host ("HOST"). `by` is the object that a user wrote. `faults`
    says whether it injects faults.
    """

    source: str
    target: str
    by: ObjectRef
    faults: bool = False


class MeshGraph(NamedTuple):
    """A snapshot of the mesh graph."""

    services: list[ServiceFacts]
    gateways: tuple[ObjectKey, ...]
    links: list[Link]


class UnhealthyProxy(NamedTuple):
    """A proxy that is refused or stale, the services of its workload, and the Gateways that select it."""

    state: str
    namespace: str
    services: tuple[ServiceRef, ...]
    gateways: tuple[ObjectKey, ...] = ()


class MeshContext(NamedTuple):
    """The problems with the hosts that they affect, the unhealthy proxies, and the number of proxies by namespace."""

    problems: list[tuple[Problem, tuple[str, ...]]]
    unhealthy: list[UnhealthyProxy]
    proxies: Mapping[str, int]


def problem_hosts(sources: Sources, problem: Problem) -> tuple[str, ...]:
    """Return the hosts that an object with a problem configures, as far as they are known.

    If a route makes requests fail, return the hosts and the gateways ("gateway NAMESPACE/NAME") of these requests, and
    the destination that is missing.
    """
    db, ref = sources.db, problem.object
    key = ObjectKey(ref.namespace, ref.name)
    if ref.kind == VIRTUAL_SERVICE.id:
        links = links_of_route(db, key)
        if problem.code not in FAILING:
            return tuple(dict.fromkeys(link.target for link in links))
        words = frozenset(problem.message.split())
        return tuple(dict.fromkeys([*(x.source for x in links), *(x.target for x in links if x.target in words)]))
    if ref.kind == DESTINATION_RULE.id and (row := DESTINATION_RULE.get(db, key)) is not None:
        return (full_name(row.spec.host, ref.namespace, db.settings.registry.domain),)
    return ()


def services_of_proxy(db: Mesh, key: str) -> tuple[ServiceRef, ...]:
    """Return the services of a connected proxy's workload, or () if it has disconnected."""
    if db.proxies.peek(key) is None:
        return ()
    return tuple(dict.fromkeys(target.ref for target in service_targets(db, key)))


def slices_of_service(db: Mesh, ref: ServiceRef) -> list[str]:
    """Return the names of the EndpointSlices of a Kubernetes Service, with their namespaces."""
    target = service(db, ref)
    if target is None or target.registry is not Registry.KUBERNETES:
        return []
    keys = ENDPOINT_SLICE.keys(db, "service", target.source)
    return sorted(f"{key.namespace}/{key.name}" for key in keys)


def gateways_of_proxy(db: Mesh, key: str) -> tuple[ObjectKey, ...]:
    """Return the Gateways that select a connected router, or () for other proxies."""
    proxy = db.proxies.peek(key)
    return gateway_selection_key(db, key).gateways if proxy is not None and proxy.type is NodeType.ROUTER else ()


def show_graph(graph: MeshGraph, around: MeshContext, opened: str) -> dict[str, Any]:
    """Return a graph as a JSON object.

    It contains counts for each namespace, and the services of the namespace `opened`. This function is slow for a large
    mesh. It is thread-safe because all arguments are immutable.
    """
    health = MeshHealth(graph, around)
    namespaces: dict[str, dict[str, Any]] = {}
    for facts in sorted(graph.services, key=lambda facts: (facts.namespace, facts.host)):
        namespace = namespaces.setdefault(
            facts.namespace,
            {"name": facts.namespace, "services": [], "count": 0, "unready": 0, "empty": 0, "faults": 0},
        )
        namespace["count"] += 1
        namespace["unready"] += facts.is_unready
        namespace["empty"] += facts.total == 0
        if facts.is_unready:
            namespace.setdefault("unready_host", facts.host)
        if facts.host in health.faulty:
            namespace["faults"] += 1
            namespace.setdefault("faulty_host", facts.host)
        if facts.namespace == opened:
            namespace["services"].append(facts.plain(health.of_service(facts)))
    for name, namespace in namespaces.items():
        namespace |= {"proxies": around.proxies.get(name, 0), **health.of_namespace(name)}
    gateways = [{"namespace": g.namespace, "name": g.name, **health.of_gateway(g)} for g in graph.gateways]
    return {
        "namespaces": list(namespaces.values()),
        "gateways": gateways,
        "links": _visible_links(graph, opened),
        "services": len(graph.services),
    }


class MeshHealth:
    """The numbers of problems and of unhealthy proxies of services, namespaces and gateways.

    `faulty` are the hosts for which a route injects faults.
    """

    def __init__(self, graph: MeshGraph, around: MeshContext) -> None:
        self.faulty = frozenset(link.source for link in graph.links if link.faults)
        self._by_object: Counter[tuple[str, str, str, str]] = Counter()
        self._by_host: Counter[tuple[str, str]] = Counter()
        self._by_namespace: Counter[tuple[str, str]] = Counter()
        self._by_service: Counter[tuple[ServiceRef, str]] = Counter()
        self._by_gateway: Counter[tuple[ObjectKey, str]] = Counter()
        for problem, hosts in around.problems:
            kind, namespace, name = problem.object
            level = f"{problem.severity}s"
            self._by_object[kind.name, namespace, name, level] += 1
            self._by_namespace[namespace, level] += 1
            for host in hosts:
                self._by_host[host, level] += 1
        for proxy in around.unhealthy:
            self._by_namespace[proxy.namespace, proxy.state] += 1
            for ref in proxy.services:
                self._by_service[ref, proxy.state] += 1
            for key in proxy.gateways:
                self._by_gateway[key, proxy.state] += 1

    def of_service(self, facts: ServiceFacts) -> dict[str, int]:
        """Return the numbers of a service, with those of its policies.

        An object that has the service's name is taken to configure it.
        """
        name, ref = facts.host.partition(".")[0], ServiceRef(facts.host, facts.namespace)
        problems = {
            level: max(
                self._by_host[facts.host, level],
                sum(self._by_object[kind, facts.namespace, name, level] for kind in _BY_NAME),
            )
            + sum(self._by_object[AUTHORIZATION_POLICY.id.name, *key, level] for _, key in facts.policies)
            for level in ("errors", "warnings")
        }
        states = {state: self._by_service[ref, state] for state in ("refused", "stale")}
        return problems | states | {"faults": int(facts.host in self.faulty)}

    def level(self, facts: ServiceFacts) -> Level:
        """Return the worst severity of what is wrong with a service."""
        of = self.of_service(facts)
        if facts.is_unready or of["errors"] or of["refused"]:
            return "bad"
        return "warn" if facts.total == 0 or of["warnings"] or of["stale"] or of["faults"] else "ok"

    def of_namespace(self, name: str) -> dict[str, int]:
        return {level: self._by_namespace[name, level] for level in ("errors", "warnings", "refused", "stale")}

    def of_gateway(self, key: ObjectKey) -> dict[str, int]:
        problems = {
            level: self._by_object["Gateway", key.namespace, key.name, level]
            + self._by_host[f"gateway {key.namespace}/{key.name}", level]
            for level in ("errors", "warnings")
        }
        return problems | {state: self._by_gateway[key, state] for state in ("refused", "stale")}


def _visible_links(graph: MeshGraph, opened: str) -> list[dict[str, Any]]:
    """Return the links between visible places. Links between the same places are combined and counted.

    A service outside the opened namespace is replaced with its namespace.
    """
    place = {facts.host: service_place(facts, opened) for facts in graph.services}
    accounts: dict[str, list[str]] = defaultdict(list)
    for facts in graph.services:
        if facts.namespace == opened:
            for account in facts.accounts:
                accounts[account].append(service_place(facts, opened))
    refs: dict[tuple[str, str], Counter[tuple[str, ObjectRef]]] = defaultdict(Counter)
    for link in graph.links:
        target = place.get(link.target)
        source = link.source if link.source.startswith("gateway ") else place.get(link.source)
        if source and target and source != target:
            refs[source, target]["route", link.by] += 1
    namespaces = {facts.namespace for facts in graph.services}
    for facts in graph.services:
        target = place[facts.host]
        for namespace, account, policy in facts.callers:
            places = accounts.get(account, []) if namespace == opened else [f"namespace {namespace}"]
            for source in places if namespace in namespaces else ():
                if source != target:
                    refs[source, target]["policy", ObjectRef(AUTHORIZATION_POLICY.id, *policy)] += 1
    return [
        {
            "from": source,
            "to": target,
            "kinds": sorted({kind for kind, _ in by}),
            "count": sum(by.values()),
            "by": [plain_ref(ref) for _, ref in sorted(by)[:MAX_REFS]],
        }
        for (source, target), by in sorted(refs.items())
    ]


def service_place(facts: ServiceFacts, opened: str) -> str:
    """Return the place of a service in the graph: its namespace, unless that is opened."""
    return f"service {facts.namespace}/{facts.host}" if facts.namespace == opened else f"namespace {facts.namespace}"


@derived
def service_facts(db: Mesh, ref: ServiceRef) -> ServiceFacts | None:
    """Return the facts about a service, or None if the service does not exist."""
    target = service(db, ref)
    if target is None:
        return None
    service_endpoints = endpoints(db, ref, target.ports[0].number) if target.ports else ()
    ready = sum(e.health in USABLE for e in service_endpoints)
    policies = service_policies(db, target)
    accounts = dict.fromkeys(
        parsed.service_account for e in service_endpoints if (parsed := parse_identity(e.service_account)) is not None
    )
    mtls = ""
    if service_endpoints:
        first = service_endpoints[0]
        mtls = mtls_mode(db, target.namespace, frozenset(workload_labels(db, target).items()), first.port)
    return ServiceFacts(
        target.namespace,
        target.hostname,
        target.registry,
        tuple(p.number for p in target.ports),
        ready,
        -1 if target.resolution in WITHOUT_ENDPOINTS else len(service_endpoints),
        mtls,
        bool(identity_policies(policies)),
        access_of(policies),
        tuple(_callers(policies)),
        tuple((row.spec.action, row.key) for row in policies),
        tuple(accounts)[:MAX_ACCOUNTS],
    )


def service_policies(db: Mesh, target: Service) -> list[Object[AuthorizationPolicy]]:
    """Return the AuthorizationPolicies that apply to the workloads of a service. Not memoised."""
    labels = cut(workload_labels(db, target), policy_label_keys(db, target.namespace))
    keys = policy_keys(db, AUTHORIZATION_POLICY.id.name, PolicySubjectKey(target.namespace, labels, frozenset()))
    return [row for key in keys if (row := AUTHORIZATION_POLICY.get(db, key)) is not None]


def workload_labels(db: Mesh, target: Service) -> Mapping[str, str]:
    """Return the labels of the workloads of a service: those of its first endpoint and of its selector.

    Those of its selector are needed because the workload of an address may not be known.
    """
    service_endpoints = endpoints(db, target.ref, target.ports[0].number) if target.ports else ()
    return dict(target.selector) | dict(service_endpoints[0].labels if service_endpoints else ())


def access_of(policies: Iterable[Object[AuthorizationPolicy]]) -> Access:
    """Return the access that policies grant as a whole. Policies in dry-run mode have no effect."""
    in_force = [row for row in policies if not dry_run(row.annotations)]
    if any(row.spec.action == "DENY" and any(rule == Rule() for rule in row.spec.rules) for row in in_force):
        return "closed"
    allowing = [row for row in in_force if row.spec.action == "ALLOW"]
    if not allowing:
        return "open"
    rules = [rule for row in allowing for rule in row.spec.rules]
    return "closed" if not rules else "open" if any(rule == Rule() for rule in rules) else "restricted"


def _callers(policies: Iterable[Object[AuthorizationPolicy]]) -> dict[AdmittedCaller, None]:
    """Return the namespaces and service accounts that ALLOW policies name."""
    return dict.fromkeys(
        AdmittedCaller(*caller, row.key)
        for row in policies
        if row.spec.action == "ALLOW" and not dry_run(row.annotations)
        for rule in row.spec.rules
        for origin in rule.from_
        for caller in source_callers(origin.source or Source(), row.namespace)
    )


def source_callers(source: Source, policy_namespace: str) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and service accounts of a source. A service account without a namespace is in that of the
    policy."""
    yield from ((namespace, "") for namespace in source.namespaces)
    for account in source.service_accounts:
        namespace, slash, name = account.partition("/")
        yield (namespace, name) if slash else (policy_namespace, account)
    for principal in source.principals:
        if (identity := parse_identity(f"spiffe://{principal}")) is not None:
            account = identity.service_account
            yield identity.namespace, "" if account == "*" else account


@derived
def route_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    """Return the keys of all VirtualServices, including those derived from the routes of other APIs."""
    return VIRTUAL_SERVICE.all_keys(db)


@derived
def links_of_route(db: Mesh, key: ObjectKey) -> tuple[Link, ...]:
    """Return the links of a VirtualService."""
    row = qualified(db, key)
    if row is None:
        return ()
    by, spec = written_by(row), row.spec
    destinations = [
        d.destination
        for rules in (spec.http, spec.tls, spec.tcp)
        for rule in rules
        for d in rule.route
        if d.destination is not None
    ]
    targets = dict.fromkeys(destination.host for destination in destinations)
    sources = [f"gateway {gateway}" for gateway in spec.gateways if gateway != _MESH]
    sources += spec.hosts if not spec.gateways or _MESH in spec.gateways else ()
    faults = any(rule.fault is not None and (rule.fault.abort or rule.fault.delay) for rule in spec.http)
    faults = faults and not ignores_http(db, key)
    return tuple(Link(source, target, by, faults) for source in sources for target in targets)


def written_by(row: Object[Any]) -> ObjectRef:
    """Return the object that a user wrote, which may be of another API."""
    return row.origin.parents[0] if row.origin is not None and row.origin.parents else row.ref
