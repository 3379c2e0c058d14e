"""The mesh graph: services grouped by namespace, gateways, the routes between them, and allowed callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, VIRTUAL_SERVICE
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef
from pilot.config.security.authorization_policy import AuthorizationPolicy, Source
from pilot.debug.sources import Sources
from pilot.derive import derived
from pilot.lib.labels import cut
from pilot.lib.spiffe import parse_identity
from pilot.mesh.model.endpoint import EndpointHealth
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service
from pilot.mesh.security.policies import policy_keys, policy_label_keys
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import qualified

WHOLE = 150
"""Maximum number of services in a mesh that is shown as a whole.

In a larger mesh, only services in requested namespaces are shown.
"""
_USABLE = frozenset({EndpointHealth.HEALTHY, EndpointHealth.UNKNOWN})
_MESH = "mesh"


class ServiceFacts(NamedTuple):
    """Facts about a service.

    `total` is the number of endpoints of the first port, of which `ready` are usable. `callers` are the callers that
    ALLOW policies admit, or None if all callers are admitted. Each caller is a namespace and a service account, which
    is "" for all service accounts. `policies` are the names of all policies that apply to the workloads.
    """

    namespace: str
    host: str
    ports: tuple[int, ...]
    ready: int
    total: int
    callers: tuple[tuple[str, str], ...] | None
    policies: tuple[str, ...]

    def plain(self, problems: int) -> dict[str, Any]:
        """Return the facts as a JSON object."""
        return {**self._asdict(), "problems": problems}


class Link(NamedTuple):
    """A route to a destination host.

    `source` is a gateway ("gateway NAMESPACE/NAME") or a host ("HOST"). `by` is the name of the VirtualService.
    """

    source: str
    target: str
    by: str


class MeshGraph(NamedTuple):
    """A snapshot of the mesh graph."""

    services: list[ServiceFacts]
    gateways: tuple[ObjectKey, ...]
    links: list[Link]


class MeshContext(NamedTuple):
    """The objects that have problems, and the namespace of each proxy."""

    problems: list[ObjectRef]
    proxies: list[str]


def mesh_context(sources: Sources) -> MeshContext:
    """Return the context of the graph from the current problems and proxies."""
    return MeshContext(
        [p.object for p in sources.problems()],
        [connection.proxy.namespace for connection in sources.fleet.connections()],
    )


def show_graph(graph: MeshGraph, around: MeshContext, requested: frozenset[str]) -> dict[str, Any]:
    """Return a graph as a JSON object.

    It contains counts for each namespace. The services of a namespace are included if the mesh is small or if the
    namespace is requested. This function is slow for a large mesh. It is thread-safe because all arguments are
    immutable.
    """
    problems = Counter((ref.kind.name, ref.namespace, ref.name) for ref in around.problems)
    by_namespace = Counter(ref.namespace for ref in around.problems)
    proxies = Counter(around.proxies)
    whole = len(graph.services) <= WHOLE
    namespaces: dict[str, dict[str, Any]] = {}
    for facts in sorted(graph.services):
        namespace = namespaces.setdefault(
            facts.namespace, {"name": facts.namespace, "services": [], "count": 0, "unready": 0}
        )
        namespace["count"] += 1
        namespace["unready"] += not facts.ready
        if whole or facts.namespace in requested:
            namespace["services"].append(facts.plain(_problems_of(problems, facts)))
    for name, namespace in namespaces.items():
        namespace |= {"problems": by_namespace[name], "proxies": proxies[name]}
    gateways = [
        {"namespace": g.namespace, "name": g.name, "problems": problems["Gateway", g.namespace, g.name]}
        for g in graph.gateways
    ]
    return {
        "namespaces": list(namespaces.values()),
        "gateways": gateways,
        "links": _visible_links(graph, namespaces),
        "services": len(graph.services),
    }


def _problems_of(problems: Counter[tuple[str, str, str]], facts: ServiceFacts) -> int:
    """Return the number of problems in the objects of a service.

    These are the objects in its namespace that have the first label of its hostname as their name.
    """
    name = facts.host.partition(".")[0]
    kinds = ("Service", "ServiceEntry", "VirtualService", "DestinationRule")
    return sum(problems[kind, facts.namespace, name] for kind in kinds)


def _visible_links(graph: MeshGraph, namespaces: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the links between visible services. Equal links are combined and counted.

    A hidden service is replaced with its namespace.
    """
    place = {facts.host: _place(facts, namespaces) for facts in graph.services}
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for link in graph.links:
        target = place.get(link.target)
        source = link.source if link.source.startswith("gateway ") else place.get(link.source)
        if source and target and source != target:
            counts[source, target, "route", link.by] += 1
    for facts in graph.services:
        for namespace, _ in facts.callers or ():
            if namespace in namespaces and place[facts.host] != f"namespace {namespace}":
                counts[f"namespace {namespace}", place[facts.host], "policy", ""] += 1
    return [
        {"from": source, "to": target, "kind": kind, "by": by, "count": n}
        for (source, target, kind, by), n in sorted(counts.items())
    ]


def _place(facts: ServiceFacts, namespaces: dict[str, dict[str, Any]]) -> str:
    return f"service {facts.host}" if namespaces[facts.namespace]["services"] else f"namespace {facts.namespace}"


@derived
def service_facts(db: Mesh, ref: ServiceRef) -> ServiceFacts | None:
    """Return the facts about a service, or None if the service does not exist."""
    target = service(db, ref)
    if target is None:
        return None
    service_endpoints = endpoints(db, ref, target.ports[0].number) if target.ports else ()
    ready = sum(e.health in _USABLE for e in service_endpoints)
    policies: list[Object[AuthorizationPolicy]] = []
    if service_endpoints:
        first = service_endpoints[0]
        labels = cut(dict(first.labels), policy_label_keys(db, target.namespace))
        keys = policy_keys(db, AUTHORIZATION_POLICY.id.name, PolicySubjectKey(target.namespace, labels, frozenset()))
        policies = [row for key in keys if (row := AUTHORIZATION_POLICY.get(db, key)) is not None]
    names = tuple(f"{row.spec.action} {row.namespace}/{row.name}" for row in policies)
    return ServiceFacts(
        target.namespace,
        target.hostname,
        tuple(p.number for p in target.ports),
        ready,
        len(service_endpoints),
        _callers(policies),
        names,
    )


def _callers(policies: Iterable[Object[AuthorizationPolicy]]) -> tuple[tuple[str, str], ...] | None:
    """Return the namespaces and service accounts that ALLOW policies admit, or None if all callers are admitted."""
    allow_policies = [row for row in policies if row.spec.action == "ALLOW"]
    if not allow_policies:
        return None
    callers: dict[tuple[str, str], None] = {}
    for row in allow_policies:
        for rule in row.spec.rules:
            if not rule.from_:
                return None
            for origin in rule.from_:
                callers |= dict.fromkeys(_source_callers(origin.source or Source(), row.namespace))
    return tuple(callers)


def _source_callers(source: Source, policy_namespace: str) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and service accounts of a source. A service account without a namespace is in that of the
    policy."""
    yield from ((namespace, "") for namespace in source.namespaces)
    for account in source.service_accounts:
        namespace, slash, name = account.partition("/")
        yield (namespace, name) if slash else (policy_namespace, account)
    for principal in source.principals:
        if (identity := parse_identity(f"spiffe://{principal}")) is not None:
            yield identity.namespace, identity.service_account


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
    by, spec = f"{row.namespace}/{row.name}", row.spec
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
    return tuple(Link(source, target, by) for source in sources for target in targets)
