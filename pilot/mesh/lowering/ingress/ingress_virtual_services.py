"""VirtualServices that are converted from Ingresses.

There is one for each host. It contains the rules of all Ingresses for the host, ordered by path, longest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import INGRESS, SERVICE
from pilot.config.kubernetes.ingress import HTTPIngressPath, IngressServiceBackend
from pilot.config.networking.virtual_service import (
    Destination,
    HTTPMatchRequest,
    HTTPRoute,
    HTTPRouteDestination,
    PortSelector,
    StringMatch,
    VirtualService,
)
from pilot.config.object import Object, ObjectKey, Origin, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub
from pilot.mesh.lowering.ingress.ingress_gateways import GENERATED, ingress_gateway
from pilot.mesh.lowering.ingress.supported_ingresses import supported_ingress, supported_ingresses
from pilot.mesh.tables.database import Mesh

_EVERYTHING = ("", "*", "/*", ".*")
_ALL = 100


class RuleKey(NamedTuple):
    """A rule of an Ingress, identified by its position. Rules for the same host are sorted by this key."""

    created: str
    name: str
    namespace: str
    position: int

    @property
    def ingress(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


@hub
def _rules_by_host(db: Mesh) -> Mapping[str, tuple[RuleKey, ...]]:
    rules: dict[str, list[RuleKey]] = {}
    for row in supported_ingresses(db).values():
        for position, rule in enumerate(row.spec.rules):
            if rule.http is not None:
                rules.setdefault(rule.host or "*", []).append(RuleKey(row.created, row.name, row.namespace, position))
    return {host: tuple(sorted(keys)) for host, keys in rules.items()}


@derived
def _hosts(db: Mesh) -> tuple[str, ...]:
    return tuple(sorted(_rules_by_host(db)))


@derived
def _rules_of(db: Mesh, host: str) -> tuple[RuleKey, ...]:
    return _rules_by_host(db).get(host, ())


@derived
def _virtual_service(db: Mesh, host: str) -> Object[VirtualService] | None:
    keys = _rules_of(db, host)
    if not keys:
        return None
    first = keys[0].ingress
    rules = sorted((rule for key in keys for rule in _routes(db, key)), key=_by_length)
    gateway = f"{db.settings.gateway_api.ingress_namespace}/{ingress_gateway(first)}"
    parents = tuple(dict.fromkeys(ObjectRef(INGRESS.id, *key.ingress) for key in keys))
    return Object(
        VIRTUAL_SERVICE.id,
        first.namespace,
        f"{host.replace('.', '-')}-{first.name}-{GENERATED}",
        VirtualService(hosts=(host,), gateways=(gateway,), http=tuple(rules)),
        origin=Origin(semantics="ingress", parents=parents),
    )


def _routes(db: Mesh, key: RuleKey) -> Iterator[HTTPRoute]:
    row = supported_ingress(db, key.ingress)
    rule = row.spec.rules[key.position] if row is not None and key.position < len(row.spec.rules) else None
    for path in rule.http.paths if rule is not None and rule.http is not None else ():
        service = path.backend.service
        if service is not None and (port := _port(db, service, key.namespace)):
            host = f"{service.name}.{key.namespace}.svc.{db.settings.registry.domain}"
            yield build_ingress_route(path, Destination(host=host, port=PortSelector(number=port)))


def _port(db: Mesh, service: IngressServiceBackend, namespace: str) -> int:
    """Return the port number of a backend. Return 0 if the backend names a port that its Service does not have."""
    if service.port.number > 0:
        return service.port.number
    row = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, namespace, service.name))
    return next((port.port for port in row.spec.ports if port.name == service.port.name), 0) if row is not None else 0


def build_ingress_route(path: HTTPIngressPath, destination: Destination) -> HTTPRoute:
    """Return the route of a path. If the path type is unknown, a path that ends with `.*` or `/*` is a prefix."""
    uri = {"Exact": StringMatch(exact=path.path), "Prefix": StringMatch(prefix=path.path)}.get(
        path.path_type or "", _old_path(path.path)
    )
    match = (HTTPMatchRequest(uri=uri),) if uri is not None else ()
    return HTTPRoute(match=match, route=(HTTPRouteDestination(destination=destination, set_weight=_ALL),))


def _old_path(path: str) -> StringMatch | None:
    if path in _EVERYTHING:
        return None
    prefix = path.removesuffix(".*") if path.endswith(".*") else path.removesuffix("/*")
    return StringMatch(exact=path) if prefix == path else StringMatch(prefix=prefix)


def _by_length(rule: HTTPRoute) -> tuple[int, bool]:
    """Return the key by which routes are sorted: the longest path first, and exact paths before prefixes."""
    uri = rule.match[0].uri if rule.match else None
    text = (uri.exact or uri.prefix or "") if uri is not None else ""
    return -len(text), uri is None or uri.exact is None


_by_host: Gather[str, [], Object[VirtualService]] = Gather("virtual_services_of_ingresses", _hosts, _virtual_service)


@derived
def virtual_services_of_ingresses(db: Mesh) -> Mapping[ObjectKey, Object[VirtualService]]:
    """Return the VirtualServices of all Ingresses. If two have the same name, the one for the first host takes
    precedence."""
    services: dict[ObjectKey, Object[VirtualService]] = {}
    for service in _by_host(db).values():
        services.setdefault(service.key, service)
    return services
