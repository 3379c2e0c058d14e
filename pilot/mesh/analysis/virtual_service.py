"""Checks that the gateways, destinations and delegates of VirtualServices exist, and that no older one claims their
hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pilot.config.kinds.istio import GATEWAY, REQUEST_AUTHENTICATION, VIRTUAL_SERVICE
from pilot.config.networking.gateway import Server
from pilot.config.networking.virtual_service import Destination, HTTPRoute, VirtualService
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.config.validation.traffic.headers import is_claim
from pilot.derive import Gather, Steps, derived, derived_in_steps, hub
from pilot.lib.hosts import OverlappingHosts
from pilot.lib.suggestion import suggest_likely
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.destination import LISTED, check_destination
from pilot.mesh.analysis.export_to import check_export_to
from pilot.mesh.analysis.route_port import check_route_ports, ignores_http
from pilot.mesh.analysis.selector import selected_anywhere
from pilot.mesh.gateways.gateways import gateway_ports, servers
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.registry.services import refs_by_hostname, service
from pilot.mesh.security.policies import policy_keys
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.excess_hosts import MAX_HOSTS, excess_hosts
from pilot.mesh.traffic.route_limits import (
    MAX_CHAINS,
    MAX_HTTP_ROUTES,
    chain_count,
    chains_per_port,
    http_route_count,
)
from pilot.mesh.traffic.rule_traits import rule_traits
from pilot.mesh.traffic.virtual_service_names import MESH, gateway_key
from pilot.mesh.traffic.virtual_services import (
    Binding,
    binding,
    check_delegates,
    check_gateway_count,
    is_made_of_routes,
    qualified,
)


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return VIRTUAL_SERVICE.all_keys(db)


@derived
def virtual_service_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a VirtualService and other objects."""
    virtual_service = qualified(db, key)
    if virtual_service is None:
        return ()
    is_derived = is_made_of_routes(virtual_service)  # the checks of routes report their parents and backends
    clients = (key.namespace, *(gateway_key(g).namespace for g in virtual_service.spec.gateways if g != MESH))
    return attribute(
        virtual_service,
        (
            *(below("spec.gateways", _check_gateways(db, virtual_service.spec)) if not is_derived else ()),
            *(below("spec", _check_match_gateways(virtual_service.spec)) if not is_derived else ()),
            *(below("spec", _check_destinations(db, virtual_service, clients)) if not is_derived else ()),
            *(_check_passthrough(db, virtual_service.spec) if not is_derived else ()),
            *(below("spec", check_route_ports(db, virtual_service.spec)) if not is_derived else ()),
            *(below("spec", check_delegates(db, virtual_service)) if not is_derived else ()),
            *below("spec", check_gateway_count(virtual_service.spec)),
            *below("spec.hosts", _check_hosts(db, virtual_service)),
            *below("spec.exportTo", check_export_to(db, virtual_service.spec.export_to)),
            *_check_delegated(db, virtual_service),
            *(below("spec", _check_claims(db, virtual_service.spec)) if not is_derived or _has_claims(db, key) else ()),
            *below("spec", _check_copies(db, virtual_service)),
        ),
    )


_MAX_SUGGESTIONS = 5
"""Maximum number of gateways, and of destinations, of a VirtualService for which another name is suggested."""
_MAX_GATEWAYS = 20
"""Maximum number of gateways of a VirtualService whose workloads are searched for a RequestAuthentication."""
VIRTUAL_SERVICES = Check("VirtualService", _keys, virtual_service_problems)


def _check_delegated(db: Mesh, o: Object[VirtualService]) -> Problems:
    """Yield a problem if a VirtualService has no hosts and is not a delegate, and therefore has no effect."""
    if not o.spec.hosts and not VIRTUAL_SERVICE.keys(db, "delegate", o.key):
        yield warning(
            "delegate-not-named",
            "spec.hosts",
            "the VirtualService has no hosts, and no other VirtualService delegates to it",
        )


def _check_gateways(db: Mesh, spec: VirtualService) -> Problems:
    for index, name in enumerate(spec.gateways):
        if name != MESH and not servers(db, gateway_key(name)):  # a Gateway has at least one server
            hint = _suggest_gateway(db, name) if index < _MAX_SUGGESTIONS else ""
            text = f"Gateway {name} not found, so the routes do not apply there{hint}"
            yield warning("gateway-not-found", f"[{index}]", text)


@derived
def _gateways_by_name(db: Mesh) -> dict[str, tuple[ObjectKey, ...]]:
    """Return the keys of all Gateways by their names without the namespace."""
    named: dict[str, list[ObjectKey]] = {}
    for key in GATEWAY.all_keys(db):
        named.setdefault(key.name, []).append(key)
    return {name: tuple(sorted(keys)[:LISTED]) for name, keys in named.items()}


def _suggest_gateway(db: Mesh, name: str) -> str:
    """Return a hint on the Gateways that have the same name in other namespaces, or else a similar name in the same
    namespace, or ""."""
    namespace, own = gateway_key(name)
    if keys := _gateways_by_name(db).get(own, ()):
        return f"; write {' or '.join(f'{key.namespace}/{key.name}' for key in keys)}"
    return suggest_likely(own, (key.name for key in GATEWAY.keys(db, "namespace", namespace)), f"{namespace}/{{}}")


def _check_passthrough(db: Mesh, spec: VirtualService) -> Problems:
    """Yield a problem for each gateway whose servers all pass TLS through, so that HTTP routes have no effect."""
    for name in spec.gateways if spec.http else ():
        listed = servers(db, gateway_key(name)) if name != MESH else ()
        if listed and all(s.tls is not None and s.tls.mode == "PASSTHROUGH" and _is_tls(s) for s in listed):
            namespace, gateway = gateway_key(name)
            port = gateway_ports(db, gateway_key(name))[0]
            yield warning(
                "no-effect",
                "spec.http",
                f"port {port} of Gateway {namespace}/{gateway} is PASSTHROUGH, so http routes have no effect; "
                f"use tls: with match: [{{port: {port}, sniHosts: [{', '.join(spec.hosts[:3])}]}}]",
            )


def _is_tls(server: Server) -> bool:
    return server.port is not None and server.port.protocol.upper() in ("HTTPS", "TLS")


def _check_claims(db: Mesh, spec: VirtualService) -> Problems:
    """Yield a problem if a route depends on a JWT claim, and no RequestAuthentication applies to a gateway's workload.

    Without a RequestAuthentication, no request has claims.
    """
    path = next(_claims(spec), None)
    if path is None:
        return
    for name in spec.gateways[:_MAX_GATEWAYS]:
        gateway = GATEWAY.get(db, gateway_key(name)) if name != MESH else None
        for namespace, labels in selected_anywhere(db, gateway.spec.selector, "") if gateway is not None else ():
            if not policy_keys(db, REQUEST_AUTHENTICATION.id.name, PolicySubjectKey(namespace, labels)):
                message = (
                    f"no RequestAuthentication applies to the workloads of Gateway {name} in namespace {namespace}"
                )
                yield warning("claims-not-verified", path, message)
                return


def _has_claims(db: Mesh, key: ObjectKey) -> bool:
    return any(traits.has_claims for traits in rule_traits(db, key))


def _claims(spec: VirtualService) -> Iterator[str]:
    """Yield the paths of the matches that depend on a JWT claim."""
    for r, rule in enumerate(spec.http):
        for m, match in enumerate(rule.match):
            if not (match.headers or match.without_headers):
                continue
            for field, headers in (("headers", match.headers), ("withoutHeaders", match.without_headers)):
                yield from (f"http[{r}].match[{m}].{field}[{name}]" for name in headers if is_claim(name))


def _check_match_gateways(spec: VirtualService) -> Problems:
    """Yield a problem for each gateway in a match that the VirtualService is not bound to. At that gateway, the match
    has no effect."""
    bound = frozenset(spec.gateways) or {MESH}
    for part in ("http", "tls", "tcp"):
        for r, rule in enumerate(getattr(spec, part)):
            for m, match in enumerate(rule.match):
                for g, name in enumerate(match.gateways):
                    if spec.hosts and name not in bound:
                        yield warning(
                            "gateway-not-bound",
                            f"{part}[{r}].match[{m}].gateways[{g}]",
                            f"spec.gateways does not include {name}",
                        )


def _check_destinations(db: Mesh, o: Object[VirtualService], clients: Iterable[str]) -> Problems:
    effects = dict(_effects(o.spec, ignores_http(db, o.key)))
    missing = 0
    for path, to in destinations(o.spec):
        problems = tuple(check_destination(db, to, clients, effects.get(path, ""), missing < _MAX_SUGGESTIONS))
        missing += any(problem.code == "destination-not-found" for problem in problems)
        yield from below(path, problems)


def _effects(spec: VirtualService, is_http_ignored: bool) -> Iterator[tuple[str, str]]:
    """Yield the paths of destinations of requests, and what happens to requests if there is no cluster for them."""
    for r, rule in enumerate(spec.http if not is_http_ignored else ()):
        total = sum(weighted.weight for weighted in rule.route)
        for d, weighted in enumerate(rule.route):
            share = "requests get" if len(rule.route) == 1 else f"{weighted.weight} of {total} requests get"
            is_used = weighted.weight or len(rule.route) == 1
            effect = f", so {share} 503" if is_used else "; its weight is 0, so it gets no requests"
            yield f"http[{r}].route[{d}].destination", effect
    for part in ("tls", "tcp"):
        for r, other in enumerate(getattr(spec, part)):
            for d, _ in enumerate(other.route):
                yield f"{part}[{r}].route[{d}].destination", ", so connections are closed"


def destinations(spec: VirtualService) -> Iterable[tuple[str, Destination | None]]:
    for r, rule in enumerate(spec.http):
        for path, to in _http_destinations(rule):
            yield f"http[{r}].{path}", to
    for part in ("tls", "tcp"):
        for r, other in enumerate(getattr(spec, part)):
            for d, weighted in enumerate(other.route):
                yield f"{part}[{r}].route[{d}].destination", weighted.destination


@derived
def _targets_of(db: Mesh, key: ObjectKey) -> frozenset[tuple[str, int]] | None:
    """Return the hosts and ports to which a VirtualService sends HTTP requests. The port is 0 if it is that of the
    request."""
    row = qualified(db, key)
    pairs = (to for rule in (row.spec.http if row is not None else ()) for _, to in _http_destinations(rule))
    return frozenset((to.host, to.port.number if to.port is not None else 0) for to in pairs if to is not None) or None


_targets_by_service: Gather[ObjectKey, [], frozenset[tuple[str, int]]] = Gather("http_targets", _keys, _targets_of)


@hub
def _http_targets(db: Mesh) -> frozenset[tuple[str, int]]:
    return frozenset().union(*_targets_by_service(db).values())


@derived
def receives_http(db: Mesh, hostname: str, port: int) -> bool:
    """Return whether a VirtualService sends HTTP requests to a port of a host."""
    return not _http_targets(db).isdisjoint(((hostname, port), (hostname, 0)))


def _http_destinations(rule: HTTPRoute) -> Iterable[tuple[str, Destination | None]]:
    yield from ((f"route[{d}].destination", weighted.destination) for d, weighted in enumerate(rule.route))
    yield "mirror", rule.mirror
    yield from ((f"mirrors[{m}].destination", mirror.destination) for m, mirror in enumerate(rule.mirrors))


# -- hosts


def _check_copies(db: Mesh, o: Object[VirtualService]) -> Problems:
    """Yield a problem if there are too many routes for the number of ports."""
    if o.key in excess_hosts(db, o.namespace):
        return  # `_check_hosts` reports it, and its hosts are not limited
    ports = max((len(numbers) for numbers in _ports(db, o)), default=1)
    if ports <= 1:
        return
    routes, chains = http_route_count(o.spec), chain_count(o.spec)
    if routes * ports > MAX_HTTP_ROUTES:
        used = max(1, MAX_HTTP_ROUTES // routes)
        yield warning(
            "too-large",
            "http",
            f"{routes} routes on {ports} ports exceed {MAX_HTTP_ROUTES} routes in total; they are only used on the "
            f"first {used} ports",
        )
    if chains * ports > MAX_CHAINS:
        yield warning(
            "too-large",
            "tls" if o.spec.tls else "tcp",
            f"{chains} matches on {ports} ports exceed {MAX_CHAINS} filter chains in total; only the first "
            f"{chains_per_port(ports)} are used on each port",
        )


def _ports(db: Mesh, o: Object[VirtualService]) -> Iterator[tuple[object, ...]]:
    """Yield the ports of each service and Gateway that a VirtualService routes."""
    for name in o.spec.gateways:
        if name != MESH:
            yield gateway_ports(db, gateway_key(name))
    if MESH in o.spec.gateways or not o.spec.gateways:
        for host in o.spec.hosts:
            for ref in refs_by_hostname(db, host.lower()):
                if (row := service(db, ref)) is not None:
                    yield row.ports


def _check_hosts(db: Mesh, o: Object[VirtualService]) -> Problems:
    own = binding(db, o.key)
    if own is None:
        return
    served = _served_hosts(db, own)
    if o.key in excess_hosts(db, o.namespace):
        yield warning(
            "too-many",
            "",
            f"the VirtualServices of namespace {o.namespace} for sidecars have more than {MAX_HOSTS} hosts together; "
            "hosts of this one that belong to no service are ignored, because older VirtualServices take precedence",
        )
        return  # checking each of its hosts, which are not limited, would cost too much
    for index, host in enumerate(o.spec.hosts):
        older = _older_claim(db, own, host)
        if older is not None:
            yield warning(
                "host-claimed",
                f"[{index}]",
                f"the older VirtualService {older.namespace}/{older.name} claims {host} in the mesh, so this one has "
                "no effect on mesh traffic to it; merge the two",
            )
        if served is not None and not served.overlap(host.lower()):
            yield warning("host-not-served", f"[{index}]", f"none of its gateways has a server for {host}")


def _older_claim(db: Mesh, own: Binding, host: str) -> ObjectKey | None:
    """Return the oldest VirtualService that claims the host in the mesh for the same namespaces.

    Return None if no such VirtualService is older than this one.
    """
    if MESH not in own.gateways:
        return None
    claims = _oldest_claims(db, host.lower())
    oldest = min((claims[viewer] for viewer in own.export_to if viewer in claims), key=lambda b: b.age, default=own)
    return oldest.key if oldest.age < own.age else None


@derived_in_steps
def _oldest_claims(db: Mesh, host: str) -> Steps[Mapping[str, Binding]]:
    """Return the binding of the oldest VirtualService that claims a host in the mesh, keyed by the namespace to which
    it is visible, or `PUBLIC`. Those for single namespaces take precedence over public ones, and do not compete with
    them."""
    claims: dict[str, Binding] = {}
    for key in VIRTUAL_SERVICE.keys(db, "host", host):
        yield binding.step(key)
        claim = binding(db, key)
        if claim is None or MESH not in claim.gateways:
            continue
        for viewer in claim.export_to:
            if viewer not in claims or claim.age < claims[viewer].age:
                claims[viewer] = claim
    return claims


def _served_hosts(db: Mesh, own: Binding) -> OverlappingHosts | None:
    """Return the hosts of the gateways of a binding that are visible to it, or None if there are none.

    Missing gateways are ignored, because another check reports them.
    """
    if MESH in own.gateways:
        return None
    listed = (server for name in own.gateways for server in servers(db, gateway_key(name)))
    hosts = [host.lower().rpartition("/") for server in listed for host in server.hosts]
    return OverlappingHosts(n for where, _, n in hosts if where in ("", "*", own.key.namespace)) if hosts else None
