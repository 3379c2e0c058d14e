"""Plan of gateway listeners and their filter chains."""

from __future__ import annotations

import pytest

from pilot.config.networking.gateway import Port, Server, ServerTLSSettings
from pilot.config.networking.virtual_service import (
    L4MatchAttributes,
    RouteDestination,
    TCPRoute,
    TLSMatchAttributes,
    TLSRoute,
    VirtualService,
)
from pilot.config.object import ObjectKey
from pilot.derive import run_steps
from pilot.envoy.listener.gateway.gateway_chain_plan import (
    AutoPassthroughServer,
    BoundL4Rules,
    GatewayListenerKey,
    HttpsChain,
    PlainChain,
    PlannedChain,
    SniChain,
    TcpChain,
    plan_chains,
    plan_listeners,
    shares_host,
)
from pilot.mesh.gateways.merge import merge_in_steps
from pilot.mesh.gateways.servers import GatewayRouteKey, ServerKey, TargetPort

GATEWAY = ObjectKey("infra", "edge")
ONE, TWO = ObjectKey("shop", "one"), ObjectKey("shop", "two")
TO = (RouteDestination(),)


def server(number: int, protocol: str, *hosts: str, mode: str = "", name: str = "", bind: str = "") -> Server:
    tls = ServerTLSSettings(mode=mode, credential_name="cert") if mode else None  # type: ignore[arg-type]
    return Server(
        port=Port(number=number, protocol=protocol, name=name or protocol.lower()),
        hosts=hosts or ("*",),
        tls=tls,
        bind=bind,
    )


def tcp(key: ObjectKey, *matches: tuple[L4MatchAttributes, ...], hosts: tuple[str, ...] = ("*",)) -> BoundL4Rules:
    return BoundL4Rules.of(key, VirtualService(hosts=hosts, tcp=tuple(TCPRoute(match=m, route=TO) for m in matches)))


def tls(key: ObjectKey, *matches: TLSMatchAttributes, hosts: tuple[str, ...] = ("*",)) -> BoundL4Rules:
    return BoundL4Rules.of(key, VirtualService(hosts=hosts, tls=tuple(TLSRoute(match=(m,), route=TO) for m in matches)))


def sni(*hosts: str, port: int = 0, gateways: tuple[str, ...] = ()) -> TLSMatchAttributes:
    return TLSMatchAttributes(sni_hosts=hosts, port=port, gateways=gateways)


def chains_by_listener(
    servers: list[Server], *bound: BoundL4Rules, targets: tuple[TargetPort, ...] = (), quic: bool = False
) -> dict[GatewayListenerKey, list[PlannedChain]]:
    gateway = run_steps(merge_in_steps([(GATEWAY, servers)], targets, quic))
    by_key = {ServerKey(GATEWAY, i): s for i, s in enumerate(servers)}
    listeners = plan_listeners(gateway, "0.0.0.0", unprivileged=False)
    return {
        listener: list(plan_chains(ports, listener.quic, by_key, {GATEWAY: bound}, {GATEWAY: 100}).chains)
        for listener, ports in listeners.items()
    }


def planned_chains(servers: list[Server], *bound: BoundL4Rules) -> list[PlannedChain]:
    (planned,) = chains_by_listener(servers, *bound).values()
    return planned


def test_http_servers_of_a_port_share_one_chain() -> None:
    assert planned_chains([server(80, "HTTP", "a.com"), server(80, "HTTP2", "b.com")]) == [
        PlainChain(GatewayRouteKey(80, ""), "HTTP")
    ]


def test_https_server_has_a_tcp_and_a_quic_chain() -> None:
    servers = [
        server(443, "HTTPS", "a.com", mode="SIMPLE"),
        server(443, "HTTPS", "b.com", mode="PASSTHROUGH", name="pass"),
    ]
    udp = (TargetPort(443, 8443, False), TargetPort(443, 8443, True))
    expected = [HttpsChain(ServerKey(GATEWAY, 0), GatewayRouteKey(443, "", "https", GATEWAY))]
    tcp = GatewayListenerKey(8443, "0.0.0.0")
    assert chains_by_listener(servers, targets=udp, quic=True) == {tcp: expected, tcp._replace(quic=True): expected}


def test_first_matching_tcp_rule_wins() -> None:
    planned = planned_chains(
        [server(9000, "TCP")],
        tcp(
            ONE,
            (L4MatchAttributes(port=1),),
            (L4MatchAttributes(gateways=("infra/other",)), L4MatchAttributes(port=9000)),
            (),
        ),
        tcp(TWO, ()),
    )
    assert planned == [TcpChain(ServerKey(GATEWAY, 0), ONE, 1)]
    assert planned_chains([server(9000, "TCP")], tcp(ONE, (L4MatchAttributes(gateways=("infra/edge",)),))) == [
        TcpChain(ServerKey(GATEWAY, 0), ONE, 0)
    ]


def test_tcp_server_without_a_rule_has_no_chain() -> None:
    assert planned_chains([server(9000, "TCP")], tls(ONE, sni("a.com"))) == []
    assert planned_chains([server(9000, "TCP", "shop/a.com")], tcp(ONE, (), hosts=("b.com",))) == []


def test_terminated_tls_uses_tcp_rules() -> None:
    assert planned_chains([server(9000, "TLS", "a.com", mode="MUTUAL")], tcp(ONE, ())) == [
        TcpChain(ServerKey(GATEWAY, 0), ONE, 0)
    ]


def test_passthrough_tls_has_one_chain_per_match_without_duplicates() -> None:
    planned = planned_chains(
        [server(443, "TLS", "*.com", mode="PASSTHROUGH")],
        tls(ONE, sni("a.com", "b.com"), sni("b.com", "c.com"), sni("d.com", port=1), hosts=("a.com",)),
        tls(TWO, sni("c.com"), sni("e.com", gateways=("infra/other",)), hosts=("*.com",)),
    )
    key = ServerKey(GATEWAY, 0)
    assert planned == [SniChain(key, ONE, 0, ("a.com", "b.com")), SniChain(key, TWO, 0, ("c.com",))]


def test_terminated_server_names_are_not_passed_through() -> None:
    servers = [
        server(443, "HTTPS", "a.com", mode="SIMPLE"),
        server(443, "TLS", "*.com", mode="PASSTHROUGH", name="tls"),
    ]
    planned = planned_chains(servers, tls(ONE, sni("a.com"), sni("b.com")))
    https = HttpsChain(ServerKey(GATEWAY, 0), GatewayRouteKey(443, "", "https", GATEWAY))
    assert planned == [https, SniChain(ServerKey(GATEWAY, 1), ONE, 1, ("b.com",))]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (server(80, "HTTP"), server(80, "HTTP", bind="0.0.0.0")),
        (server(80, "TCP"), server(80, "TCP", bind="0.0.0.0")),
        (
            server(443, "HTTPS", "a.com", mode="SIMPLE"),
            server(443, "HTTPS", "a.com", mode="SIMPLE", name="b", bind="0.0.0.0"),
        ),
    ],
)
def test_wildcard_bind_equals_no_bind(first: Server, second: Server) -> None:
    gateway = run_steps(merge_in_steps([(GATEWAY, [first, second])], (), False))
    listeners = plan_listeners(gateway, "0.0.0.0", unprivileged=False)
    (ports,) = listeners.values()
    servers = {ServerKey(GATEWAY, 0): first, ServerKey(GATEWAY, 1): second}
    planned = plan_chains(ports, False, servers, {GATEWAY: [tcp(ONE, ())]}, {GATEWAY: 100})
    assert len(planned.chains) == 1
    assert planned.shadowed == (ServerKey(GATEWAY, 1),)


def test_auto_passthrough_server() -> None:
    assert planned_chains([server(15443, "TLS", "*.local", mode="AUTO_PASSTHROUGH")]) == [
        AutoPassthroughServer(ServerKey(GATEWAY, 0))
    ]


def test_protocols_of_one_port_share_the_listener() -> None:
    servers = [
        server(443, "HTTPS", "a.com", mode="SIMPLE"),
        server(443, "TLS", "b.com", mode="PASSTHROUGH", bind="0.0.0.0"),
    ]
    planned = chains_by_listener(servers, tls(ONE, sni("b.com")))
    assert list(planned) == [GatewayListenerKey(443, "0.0.0.0")]
    assert len(planned[GatewayListenerKey(443, "0.0.0.0")]) == 2


def test_unprivileged_pods_have_no_low_ports() -> None:
    gateway = run_steps(merge_in_steps([(GATEWAY, [server(80, "HTTP"), server(8080, "HTTP")])], (), False))
    assert list(plan_listeners(gateway, "::", unprivileged=True)) == [GatewayListenerKey(8080, "::")]


def test_rules_without_destination_are_ignored() -> None:
    assert BoundL4Rules.of(ONE, VirtualService(tcp=(TCPRoute(), TCPRoute(route=TO)))).tcp == ((1, ()),)


@pytest.mark.parametrize(
    ("servers", "services", "shared"),
    [
        (("*",), ("a.com",), True),
        (("a.com",), ("*.com",), True),
        (("other/a.com",), ("a.com",), False),
        (("shop/*",), ("a.com",), True),
    ],
)
def test_shared_hosts(servers: tuple[str, ...], services: tuple[str, ...], shared: bool) -> None:
    assert shares_host(servers, "shop", services) is shared
