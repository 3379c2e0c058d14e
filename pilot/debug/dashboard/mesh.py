"""The mesh as a picture: services by namespace, gateways, which routes lead where, and who may call whom."""

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
"""Services that are shown one by one; of more, those of the namespaces that are asked for."""
_USABLE = frozenset({EndpointHealth.HEALTHY, EndpointHealth.UNKNOWN})
_MESH = "mesh"


class ServiceFacts(NamedTuple):
    """A service. `ready` of `total` endpoints of its first port are usable. `callers` are the namespaces whose workloads its ALLOW policies let in,
    with their service accounts or ""; None where everybody may call it. `policies` are the names of all that apply to its workloads."""

    namespace: str
    host: str
    ports: tuple[int, ...]
    ready: int
    total: int
    callers: tuple[tuple[str, str], ...] | None
    policies: tuple[str, ...]

    def plain(self, problems: int) -> dict[str, Any]:
        """Returns the facts for JSON."""
        return {**self._asdict(), "problems": problems}


class Link(NamedTuple):
    """A route from a gateway ("gateway NAMESPACE/NAME") or a host ("HOST") to the host that it sends requests to. `by` is the VirtualService."""

    source: str
    target: str
    by: str


class Picture(NamedTuple):
    """All of the mesh at one moment."""

    services: list[ServiceFacts]
    gateways: tuple[ObjectKey, ...]
    links: list[Link]


class Around(NamedTuple):
    """What is shown beside the services: what the problems are of, and the namespaces of the proxies."""

    problems: list[ObjectRef]
    proxies: list[str]


def look_around(sources: Sources) -> Around:
    """Returns the problems and proxies of now."""
    return Around(
        [p.object for p in sources.problems()],
        [connection.proxy.namespace for connection in sources.fleet.connections()],
    )


def show_picture(picture: Picture, around: Around, asked: frozenset[str]) -> dict[str, Any]:
    """Returns a picture for JSON: namespaces with their counts, and their services where there are few or the namespace is asked for. It takes long
    for a large mesh, and needs nothing that changes."""
    problems = Counter((ref.kind.name, ref.namespace, ref.name) for ref in around.problems)
    by_namespace = Counter(ref.namespace for ref in around.problems)
    proxies = Counter(around.proxies)
    whole = len(picture.services) <= WHOLE
    shown: dict[str, dict[str, Any]] = {}
    for facts in sorted(picture.services):
        namespace = shown.setdefault(
            facts.namespace, {"name": facts.namespace, "services": [], "count": 0, "unready": 0}
        )
        namespace["count"] += 1
        namespace["unready"] += not facts.ready
        if whole or facts.namespace in asked:
            namespace["services"].append(facts.plain(_problems_of(problems, facts)))
    for name, namespace in shown.items():
        namespace |= {"problems": by_namespace[name], "proxies": proxies[name]}
    found = [
        {"namespace": g.namespace, "name": g.name, "problems": problems["Gateway", g.namespace, g.name]}
        for g in picture.gateways
    ]
    return {
        "namespaces": list(shown.values()),
        "gateways": found,
        "links": _shown_links(picture, shown),
        "services": len(picture.services),
    }


def _problems_of(problems: Counter[tuple[str, str, str]], facts: ServiceFacts) -> int:
    """Returns how many problems there are of the Kubernetes Service of a host, and of the objects of its name."""
    name = facts.host.partition(".")[0]
    kinds = ("Service", "ServiceEntry", "VirtualService", "DestinationRule")
    return sum(problems[kind, facts.namespace, name] for kind in kinds)


def _shown_links(picture: Picture, shown: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns links between what is shown: services, or the namespace in the place of one that is not; each once, with how many it stands for."""
    place = {facts.host: _place(facts, shown) for facts in picture.services}
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for link in picture.links:
        target = place.get(link.target)
        source = link.source if link.source.startswith("gateway ") else place.get(link.source)
        if source and target and source != target:
            counts[source, target, "route", link.by] += 1
    for facts in picture.services:
        for namespace, _ in facts.callers or ():
            if namespace in shown and place[facts.host] != f"namespace {namespace}":
                counts[f"namespace {namespace}", place[facts.host], "policy", ""] += 1
    return [
        {"from": source, "to": target, "kind": kind, "by": by, "count": n}
        for (source, target, kind, by), n in sorted(counts.items())
    ]


def _place(facts: ServiceFacts, shown: dict[str, dict[str, Any]]) -> str:
    return f"service {facts.host}" if shown[facts.namespace]["services"] else f"namespace {facts.namespace}"


@derived
def service_facts(db: Mesh, ref: ServiceRef) -> ServiceFacts | None:
    """Returns the facts of a service; None while it is being declared in two ways."""
    found = service(db, ref)
    if found is None:
        return None
    behind = endpoints(db, ref, found.ports[0].number) if found.ports else ()
    ready = sum(e.health in _USABLE for e in behind)
    policies: list[Object[AuthorizationPolicy]] = []
    if behind:
        first = behind[0]
        labels = cut(dict(first.labels), policy_label_keys(db, found.namespace))
        keys = policy_keys(db, AUTHORIZATION_POLICY.id.name, PolicySubjectKey(found.namespace, labels, frozenset()))
        policies = [row for key in keys if (row := AUTHORIZATION_POLICY.get(db, key)) is not None]
    names = tuple(f"{row.spec.action} {row.namespace}/{row.name}" for row in policies)
    return ServiceFacts(
        found.namespace,
        found.hostname,
        tuple(p.number for p in found.ports),
        ready,
        len(behind),
        _callers(policies),
        names,
    )


def _callers(policies: Iterable[Object[AuthorizationPolicy]]) -> tuple[tuple[str, str], ...] | None:
    """Returns who the ALLOW policies let in, as far as they name namespaces and accounts; None where there is none, or one lets in anybody."""
    allowing = [row for row in policies if row.spec.action == "ALLOW"]
    if not allowing:
        return None
    found: dict[tuple[str, str], None] = {}
    for row in allowing:
        for rule in row.spec.rules:
            if not rule.from_:
                return None
            for origin in rule.from_:
                found |= dict.fromkeys(_named(origin.source or Source(), row.namespace))
    return tuple(found)


def _named(source: Source, own: str) -> Iterator[tuple[str, str]]:
    """Yields the namespaces and accounts of a source. An account without a namespace is of the policy's own."""
    yield from ((namespace, "") for namespace in source.namespaces)
    for account in source.service_accounts:
        namespace, slash, name = account.partition("/")
        yield (namespace, name) if slash else (own, account)
    for principal in source.principals:
        if (identity := parse_identity(f"spiffe://{principal}")) is not None:
            yield identity.namespace, identity.service_account


@derived
def route_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    """Returns the keys of all VirtualServices, and of what routes became."""
    return VIRTUAL_SERVICE.all_keys(db)


@derived
def links_of_route(db: Mesh, key: ObjectKey) -> tuple[Link, ...]:
    """Returns the links of a VirtualService."""
    row = qualified(db, key)
    if row is None:
        return ()
    by, spec = f"{row.namespace}/{row.name}", row.spec
    routed = [
        d.destination
        for rules in (spec.http, spec.tls, spec.tcp)
        for rule in rules
        for d in rule.route
        if d.destination is not None
    ]
    targets = dict.fromkeys(destination.host for destination in routed)
    sources = [f"gateway {gateway}" for gateway in spec.gateways if gateway != _MESH]
    sources += spec.hosts if not spec.gateways or _MESH in spec.gateways else ()
    return tuple(Link(source, target, by) for source in sources for target in targets)
