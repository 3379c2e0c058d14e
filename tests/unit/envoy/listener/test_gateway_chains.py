"""Listeners of a gateway and their filter chains, planned by names."""

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
from pilot.mesh.gateways.merge import merge
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


def chains(
    servers: list[Server], *bound: BoundL4Rules, targets: tuple[TargetPort, ...] = (), quic: bool = False
) -> dict[GatewayListenerKey, list[PlannedChain]]:
    gateway = merge([(GATEWAY, servers)], targets, quic)
    by_key = {ServerKey(GATEWAY, i): s for i, s in enumerate(servers)}
    listeners = plan_listeners(gateway, "0.0.0.0", unprivileged=False)
    return {
        listener: list(plan_chains(ports, listener.quic, by_key, {GATEWAY: bound}).chains)
        for listener, ports in listeners.items()
    }


def only(servers: list[Server], *bound: BoundL4Rules) -> list[PlannedChain]:
    (found,) = chains(servers, *bound).values()
    return found


def test_plain_http_is_one_chain_for_all_servers() -> None:
    assert only([server(80, "HTTP", "a.com"), server(80, "HTTP2", "b.com")]) == [
        PlainChain(GatewayRouteKey(80, ""), "HTTP")
    ]


def test_each_https_server_has_its_chain_and_its_mirror_over_quic() -> None:
    servers = [
        server(443, "HTTPS", "a.com", mode="SIMPLE"),
        server(443, "HTTPS", "b.com", mode="PASSTHROUGH", name="pass"),
    ]
    udp = (TargetPort(443, 8443, False), TargetPort(443, 8443, True))
    expected = [HttpsChain(ServerKey(GATEWAY, 0), GatewayRouteKey(443, "", "https", GATEWAY))]
    tcp = GatewayListenerKey(8443, "0.0.0.0")
    assert chains(servers, targets=udp, quic=True) == {tcp: expected, tcp._replace(quic=True): expected}


def test_tcp_takes_the_first_rule_that_applies() -> None:
    found = only(
        [server(9000, "TCP")],
        tcp(
            ONE,
            (L4MatchAttributes(port=1),),
            (L4MatchAttributes(gateways=("infra/other",)), L4MatchAttributes(port=9000)),
            (),
        ),
        tcp(TWO, ()),
    )
    assert found == [TcpChain(ServerKey(GATEWAY, 0), ONE, 1)]
    assert only([server(9000, "TCP")], tcp(ONE, (L4MatchAttributes(gateways=("infra/edge",)),))) == [
        TcpChain(ServerKey(GATEWAY, 0), ONE, 0)
    ]


def test_a_tcp_server_without_a_rule_has_no_chain() -> None:
    assert only([server(9000, "TCP")], tls(ONE, sni("a.com"))) == []
    assert only([server(9000, "TCP", "shop/a.com")], tcp(ONE, (), hosts=("b.com",))) == []


def test_tls_that_ends_here_leads_to_tcp_rules() -> None:
    assert only([server(9000, "TLS", "a.com", mode="MUTUAL")], tcp(ONE, ())) == [
        TcpChain(ServerKey(GATEWAY, 0), ONE, 0)
    ]


def test_passed_on_tls_has_a_chain_for_every_condition_but_no_name_twice() -> None:
    found = only(
        [server(443, "TLS", "*.com", mode="PASSTHROUGH")],
        tls(ONE, sni("a.com", "b.com"), sni("b.com", "c.com"), sni("d.com", port=1), hosts=("a.com",)),
        tls(TWO, sni("c.com"), sni("e.com", gateways=("infra/other",)), hosts=("*.com",)),
    )
    key = ServerKey(GATEWAY, 0)
    assert found == [SniChain(key, ONE, 0, ("a.com", "b.com")), SniChain(key, TWO, 0, ("c.com",))]


def test_names_of_servers_that_end_tls_are_not_passed_on() -> None:
    servers = [
        server(443, "HTTPS", "a.com", mode="SIMPLE"),
        server(443, "TLS", "*.com", mode="PASSTHROUGH", name="tls"),
    ]
    found = only(servers, tls(ONE, sni("a.com"), sni("b.com")))
    https = HttpsChain(ServerKey(GATEWAY, 0), GatewayRouteKey(443, "", "https", GATEWAY))
    assert found == [https, SniChain(ServerKey(GATEWAY, 1), ONE, 1, ("b.com",))]


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
def test_an_address_that_stands_for_all_is_the_one_of_servers_that_name_none(first: Server, second: Server) -> None:
    gateway = merge([(GATEWAY, [first, second])], (), False)
    listeners = plan_listeners(gateway, "0.0.0.0", unprivileged=False)
    (ports,) = listeners.values()
    planned = plan_chains(
        ports, False, {ServerKey(GATEWAY, 0): first, ServerKey(GATEWAY, 1): second}, {GATEWAY: [tcp(ONE, ())]}
    )
    assert len(planned.chains) == 1
    assert planned.shadowed == (ServerKey(GATEWAY, 1),)


def test_passages_of_the_mesh() -> None:
    assert only([server(15443, "TLS", "*.local", mode="AUTO_PASSTHROUGH")]) == [
        AutoPassthroughServer(ServerKey(GATEWAY, 0))
    ]


def test_protocols_of_one_port_share_the_listener() -> None:
    servers = [
        server(443, "HTTPS", "a.com", mode="SIMPLE"),
        server(443, "TLS", "b.com", mode="PASSTHROUGH", bind="0.0.0.0"),
    ]
    found = chains(servers, tls(ONE, sni("b.com")))
    assert list(found) == [GatewayListenerKey(443, "0.0.0.0")]
    assert len(found[GatewayListenerKey(443, "0.0.0.0")]) == 2


def test_pods_without_privileges_have_no_low_ports() -> None:
    gateway = merge([(GATEWAY, [server(80, "HTTP"), server(8080, "HTTP")])], (), False)
    assert list(plan_listeners(gateway, "::", unprivileged=True)) == [GatewayListenerKey(8080, "::")]


def test_rules_that_lead_nowhere_do_not_count() -> None:
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
def test_hosts_overlap_either_way(servers: tuple[str, ...], services: tuple[str, ...], shared: bool) -> None:
    assert shares_host(servers, "shop", services) is shared
