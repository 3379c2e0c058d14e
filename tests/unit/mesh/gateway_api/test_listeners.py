"""Route kinds supported by listeners."""

from __future__ import annotations

import pytest

from pilot.config.gateway_api.gateway import AllowedRoutes, Listener, ListenerTLSConfig, RouteGroupKind
from pilot.mesh.gateway_api.listeners import supported_kinds

TERMINATES, PASSES = ListenerTLSConfig(), ListenerTLSConfig(mode="Passthrough")


@pytest.mark.parametrize(
    ("protocol", "tls", "allowed", "kinds", "is_all"),
    [
        ("HTTP", None, (), ["HTTPRoute", "GRPCRoute"], True),
        ("HTTPS", TERMINATES, (), ["HTTPRoute", "GRPCRoute"], True),
        ("HTTPS", TERMINATES, ("TCPRoute",), [], False),
        ("TCP", None, (), ["TCPRoute"], True),
        ("TLS", None, (), ["TLSRoute"], True),
        ("TLS", PASSES, (), ["TLSRoute"], True),
        ("TLS", PASSES, ("TLSRoute", "TCPRoute"), ["TLSRoute"], False),
        ("TLS", TERMINATES, (), ["TLSRoute", "TCPRoute"], True),
        ("TLS", TERMINATES, ("TCPRoute",), ["TCPRoute"], True),
        ("TCP", TERMINATES, ("TLSRoute",), [], False),
        ("UDP", None, (), [], True),
    ],
)
def test_supported_route_kinds_of_a_listener(
    protocol: str, tls: ListenerTLSConfig | None, allowed: tuple[str, ...], kinds: list[str], is_all: bool
) -> None:
    routes = AllowedRoutes(kinds=tuple(RouteGroupKind(kind=kind) for kind in allowed))
    supported, whole = supported_kinds(Listener(protocol=protocol, tls=tls, allowed_routes=routes))
    assert ([kind.name for kind in supported], whole) == (kinds, is_all)


def test_route_kind_of_another_group_is_not_supported() -> None:
    foreign, valid = (
        RouteGroupKind(group="other", kind="HTTPRoute"),
        RouteGroupKind(group="gateway.networking.k8s.io", kind="HTTPRoute"),
    )
    assert supported_kinds(Listener(protocol="HTTP", allowed_routes=AllowedRoutes(kinds=(foreign,)))) == ((), False)
    supported, whole = supported_kinds(Listener(protocol="HTTP", allowed_routes=AllowedRoutes(kinds=(foreign, valid))))
    assert ([kind.name for kind in supported], whole) == (["HTTPRoute"], False)
