"""Qualifies names in a VirtualService: hosts become full names, and gateways become `namespace/name` or `mesh`."""

from __future__ import annotations

from msgspec.structs import replace

from pilot.config.networking.virtual_service import (
    Destination,
    HTTPMatchRequest,
    HTTPMirrorPolicy,
    HTTPRoute,
    HTTPRouteDestination,
    L4MatchAttributes,
    RouteDestination,
    TCPRoute,
    TLSMatchAttributes,
    TLSRoute,
    VirtualService,
)
from pilot.config.object import ObjectKey
from pilot.lib.hosts import full_name

MESH = "mesh"


def qualify_gateway(name: str, namespace: str) -> str:
    """Return the qualified name of a gateway in a VirtualService: `namespace/name` or `mesh`.

    The name may be written as `name`, `namespace/name`, `./name` or, in old configurations, `name.namespace.svc.…`.
    """
    if name == MESH:
        return name
    if "/" in name:
        where, _, rest = name.partition("/")
        return f"{namespace}/{rest}" if where == "." else name
    if "." in name:
        first, where, *_ = name.split(".", 2)
        return f"{where}/{first}"
    return f"{namespace}/{name}"


def gateway_key(name: str) -> ObjectKey:
    """Return the key of a gateway with the qualified name `namespace/name`."""
    namespace, _, rest = name.partition("/")
    return ObjectKey(namespace, rest)


def qualify_names(spec: VirtualService, namespace: str, domain: str) -> VirtualService:
    """Return the VirtualService with all names qualified. `namespace` is that of its object."""
    return _Qualifier(namespace, domain).virtual_service(spec)


class _Qualifier:
    def __init__(self, namespace: str, domain: str) -> None:
        self.namespace, self.domain = namespace, domain

    def virtual_service(self, spec: VirtualService) -> VirtualService:
        return replace(
            spec,
            hosts=tuple(full_name(h, self.namespace, self.domain) for h in spec.hosts),
            gateways=self.gateways(spec.gateways),
            http=tuple(self.http_route(r) for r in spec.http),
            tls=tuple(self.tls_route(r) for r in spec.tls),
            tcp=tuple(self.tcp_route(r) for r in spec.tcp),
        )

    def gateways(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(qualify_gateway(g, self.namespace) for g in names)

    def destination(self, to: Destination | None) -> Destination | None:
        if to is None:
            return None
        host = full_name(to.host, self.namespace, self.domain)
        return to if host == to.host else replace(to, host=host)

    def http_route(self, rule: HTTPRoute) -> HTTPRoute:
        return replace(
            rule,
            match=tuple(self.http_match(m) for m in rule.match),
            route=tuple(self.http_destination(r) for r in rule.route),
            mirror=self.destination(rule.mirror),
            mirrors=tuple(self.mirror(m) for m in rule.mirrors),
        )

    def http_match(self, match: HTTPMatchRequest) -> HTTPMatchRequest:
        return replace(match, gateways=self.gateways(match.gateways)) if match.gateways else match

    def http_destination(self, route: HTTPRouteDestination) -> HTTPRouteDestination:
        return replace(route, destination=self.destination(route.destination))

    def mirror(self, policy: HTTPMirrorPolicy) -> HTTPMirrorPolicy:
        return replace(policy, destination=self.destination(policy.destination))

    def l4_destination(self, route: RouteDestination) -> RouteDestination:
        return replace(route, destination=self.destination(route.destination))

    def tls_match(self, match: TLSMatchAttributes) -> TLSMatchAttributes:
        return replace(match, gateways=self.gateways(match.gateways)) if match.gateways else match

    def tcp_match(self, match: L4MatchAttributes) -> L4MatchAttributes:
        return replace(match, gateways=self.gateways(match.gateways)) if match.gateways else match

    def tls_route(self, rule: TLSRoute) -> TLSRoute:
        return replace(
            rule, match=tuple(map(self.tls_match, rule.match)), route=tuple(map(self.l4_destination, rule.route))
        )

    def tcp_route(self, rule: TCPRoute) -> TCPRoute:
        return replace(
            rule, match=tuple(map(self.tcp_match, rule.match)), route=tuple(map(self.l4_destination, rule.route))
        )
