"""Merged Gateway servers of one router: shared ports and rejected servers."""

from __future__ import annotations

import pytest

from pilot.config.networking.gateway import Port, Server, ServerTLSSettings
from pilot.config.object import ObjectKey
from pilot.derive import run_steps
from pilot.mesh.gateways.merge import merge_in_steps, resolve_port
from pilot.mesh.gateways.servers import GatewayRouteKey, MergedGateway, TargetPort, qualify_hosts, sni_hosts

OLD, NEW = ObjectKey("a", "old"), ObjectKey("b", "new")


def http(
    number: int, *hosts: str, name: str = "http", protocol: str = "HTTP", bind: str = "", redirect: bool = False
) -> Server:
    tls = ServerTLSSettings(https_redirect=True) if redirect else None
    return Server(port=Port(number=number, protocol=protocol, name=name), hosts=hosts or ("*",), bind=bind, tls=tls)


def https(
    number: int, *hosts: str, name: str = "https", protocol: str = "HTTPS", mode: str = "SIMPLE", bind: str = ""
) -> Server:
    tls = ServerTLSSettings(mode=mode, credential_name="cert")  # type: ignore[arg-type]
    return Server(port=Port(number=number, protocol=protocol, name=name), hosts=hosts, bind=bind, tls=tls)


def merged(
    old: list[Server], new: list[Server] | None = None, targets: tuple[TargetPort, ...] = (), quic: bool = False
) -> MergedGateway:
    return run_steps(merge_in_steps([(OLD, old), (NEW, new or [])], targets, quic))


def slots(gateway: MergedGateway) -> dict[tuple[int, str, str], list[tuple[str, int]]]:
    return {
        (p.number, p.protocol, p.bind): [(s.key.gateway.name, s.key.position) for s in p.servers] for p in gateway.ports
    }


def routes(gateway: MergedGateway) -> dict[GatewayRouteKey, int]:
    return {ref: len(keys) for ref, keys in gateway.routes}


def test_plaintext_http_servers_of_a_port_share_one_route() -> None:
    gateway = merged([http(80, "a.com")], [http(80, "b.com", protocol="HTTP2")])
    assert slots(gateway) == {(80, "HTTP", ""): [("old", 0), ("new", 0)]}
    assert routes(gateway) == {GatewayRouteKey(80, ""): 2}


def test_target_port_is_that_of_the_first_matching_service() -> None:
    targets = (TargetPort(80, 1, False, translates=False), TargetPort(80, 8080, False), TargetPort(80, 9090, False))
    assert resolve_port(80, targets) == 8080
    assert resolve_port(81, targets) == 81
    gateway = merged([http(80)], [http(8080)], targets)
    assert slots(gateway) == {(8080, "HTTP", ""): [("old", 0), ("new", 0)]}


def test_each_https_server_has_its_own_route_named_by_the_gateway_port() -> None:
    gateway = merged([https(443, "a.com")], [https(443, "b.com")], (TargetPort(443, 8443, False),))
    assert slots(gateway) == {(8443, "HTTPS", ""): [("old", 0), ("new", 0)]}
    assert routes(gateway) == {GatewayRouteKey(443, "", "https", OLD): 1, GatewayRouteKey(443, "", "https", NEW): 1}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (http(80), http(80, protocol="TCP"), "protocol HTTP"),
        (http(80, protocol="TCP"), http(80), "protocol TCP"),
        (http(80, protocol="TCP"), http(80, protocol="TCP"), "protocol TCP"),
        (http(443), https(443, "a.com"), "protocol HTTP"),
        (https(443, "a.com", "b.com"), https(443, "b.com", "c.com", name="other"), "TLS for b.com"),
        (http(80, "a.com", redirect=True), http(80, "a.com", redirect=True), "TLS for a.com"),
        (https(443, "a.com"), https(443, "a.com", protocol="TLS", mode="PASSTHROUGH"), "TLS for a.com"),
        (http(80), Server(hosts=("*",)), "no port"),
    ],
)
def test_newer_conflicting_server_is_rejected(old: Server, new: Server, reason: str) -> None:
    gateway = merged([old], [new])
    assert [(r.key.gateway, reason in r.reason) for r in gateway.rejected] == [(NEW, True)]
    assert sum(len(p.servers) for p in gateway.ports) == 1


def test_tls_hosts_conflict_across_namespaces() -> None:
    gateway = merged([https(443, "a/x.com")], [https(443, "b/x.com"), https(443, "b/y.com", name="other")])
    assert [r.key for r in gateway.rejected] == [(NEW, 0)]
    assert merged([https(443, "A.com")], [https(443, "a.com")]).rejected
    assert not merged([http(80, "a/x.com", redirect=True)], [http(80, "b/x.com", redirect=True)]).rejected


def test_duplicate_port_name_in_a_gateway_is_rejected() -> None:
    gateway = merged([https(443, "a.com"), https(443, "b.com")])
    assert [r.key.position for r in gateway.rejected] == [1]


def test_each_bind_address_has_its_own_listener() -> None:
    gateway = merged(
        [http(80), http(80, bind="10.0.0.1"), http(80, protocol="TCP", bind="10.0.0.2")], [http(80, bind="10.0.0.1")]
    )
    assert not gateway.rejected
    assert slots(gateway) == {
        (80, "HTTP", ""): [("old", 0)],
        (80, "HTTP", "10.0.0.1"): [("old", 1), ("new", 0)],
        (80, "TCP", "10.0.0.2"): [("old", 2)],
    }
    assert routes(gateway) == {GatewayRouteKey(80, ""): 1, GatewayRouteKey(80, "10.0.0.1"): 2}


def test_host_may_repeat_on_another_bind_address() -> None:
    gateway = merged([https(443, "a.com")], [https(443, "a.com", bind="10.0.0.1")])
    assert not gateway.rejected


def test_passthrough_and_terminated_servers_share_a_port() -> None:
    gateway = merged([https(443, "a.com"), https(443, "b.com", protocol="TLS", mode="PASSTHROUGH", name="tls")])
    assert slots(gateway) == {(443, "HTTPS", ""): [("old", 0)], (443, "TLS", ""): [("old", 1)]}
    assert routes(gateway) == {GatewayRouteKey(443, "", "https", OLD): 1}


def test_plaintext_server_joins_an_older_tls_server_on_its_port() -> None:
    gateway = merged([https(9000, "a.com", protocol="TCP", name="tls")], [http(9000, protocol="TCP", name="tcp")])
    assert slots(gateway) == {(9000, "TCP", ""): [("old", 0), ("new", 0)]}
    assert not gateway.rejected
    split = merged([https(9000, "a.com")], [http(9000)])
    assert slots(split) == {(9000, "HTTPS", ""): [("old", 0)], (9000, "HTTP", ""): [("new", 0)]}


def test_http3_requires_the_flag_tls_termination_and_a_udp_port() -> None:
    servers = [https(443, "a.com"), https(443, "b.com", name="pass", mode="PASSTHROUGH"), http(80)]
    both = (TargetPort(443, 8443, False), TargetPort(443, 8443, True))
    assert [bool(p.quic) for p in merged(servers, targets=both, quic=True).ports] == [True, False]
    assert merged(servers, targets=both, quic=True).http3 == {GatewayRouteKey(443, "", "https", OLD)}
    assert not any(p.quic for p in merged(servers, targets=both).ports)
    assert not any(p.quic for p in merged(servers, targets=both[:1], quic=True).ports)


def test_auto_passthrough_is_detected() -> None:
    assert merged([https(15443, "*.local", protocol="TLS", mode="AUTO_PASSTHROUGH")]).auto_passthrough
    assert not merged([https(15443, "*.local", protocol="TLS", mode="PASSTHROUGH")]).auto_passthrough


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (("a.com", "ns/b.com"), ("a.com", "ns/b.com")),
        (("./a.com", "*/b.com", "*"), ("here/a.com", "b.com", "*")),
        (("a.com", "*/*"), ("*",)),
    ],
)
def test_qualify_hosts(hosts: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert qualify_hosts(http(80, *hosts), "here").hosts == expected


def test_sni_hosts_are_sorted_without_namespaces() -> None:
    assert sni_hosts(https(443, "ns/b.com", "a.com", "b.com")) == ("a.com", "b.com")
    assert sni_hosts(http(80, "a.com")) == ()
