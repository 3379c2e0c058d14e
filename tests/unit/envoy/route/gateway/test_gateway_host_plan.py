"""Plan of the virtual hosts of a gateway's route configuration."""

from __future__ import annotations

import random

import pytest

from pilot.config.object import ObjectKey
from pilot.derive import run_steps
from pilot.envoy.route.gateway.gateway_host_plan import (
    BoundVirtualService,
    GatewayHostKey,
    RouteSourceKey,
    ServerHosts,
    hosts_for_namespace,
    intersect_hosts_in_steps,
    plan_hosts_in_steps,
)

GATEWAY, OTHER = ObjectKey("infra", "edge"), ObjectKey("infra", "other")
ANY = frozenset({80, 443, 8080})


def server(
    *hosts: str, gateway: ObjectKey = GATEWAY, port: int = 80, tls: bool = False, redirects: bool = False
) -> ServerHosts:
    return ServerHosts(gateway, hosts, port, tls or redirects, redirects)


def bound(name: str, *hosts: str, namespace: str = "shop", ports: frozenset[int] = ANY) -> BoundVirtualService:
    return BoundVirtualService(ObjectKey(namespace, name), hosts, ports)


def source(
    name: str, gateway: ObjectKey = GATEWAY, port: int = 80, tls: bool = False, namespace: str = "shop"
) -> RouteSourceKey:
    return RouteSourceKey(gateway, ObjectKey(namespace, name), port, tls)


def plan(
    servers: list[ServerHosts],
    *services: BoundVirtualService,
    other: tuple[BoundVirtualService, ...] = (),
    collapse: bool = True,
) -> list[GatewayHostKey]:
    return list(run_steps(plan_hosts_in_steps(servers, {GATEWAY: services, OTHER: other}, collapse)))


def test_hosts_with_equal_routes_share_a_virtual_host() -> None:
    services = (bound("vs", "b.com", "*.com", "aa.com"),)
    assert plan([server("*")], *services) == [
        GatewayHostKey("aa.com:80", ("aa.com", "b.com", "*.com"), (source("vs"),), False)
    ]
    assert [h.domains for h in plan([server("*")], *services, collapse=False)] == [("*.com",), ("aa.com",), ("b.com",)]


def test_routes_of_several_virtual_services_are_merged_in_order() -> None:
    hosts = plan([server("*")], bound("one", "a.com"), bound("two", "a.com", "b.com"))
    assert hosts == [
        GatewayHostKey("a.com:80", ("a.com",), (source("one"), source("two")), False),
        GatewayHostKey("b.com:80", ("b.com",), (source("two"),), False),
    ]


def test_server_namespaces_limit_hosts() -> None:
    services = bound("vs", "a.com"), bound("vs", "a.com", namespace="rogue")
    hosts = plan([server("shop/a.com", "team/b.com")], *services)
    assert hosts == [GatewayHostKey("a.com:80", ("a.com",), (source("vs"),), False)]


def test_redirect_server_without_routes() -> None:
    hosts = plan([server("A.com", "b.com", redirects=True)])
    assert hosts == [GatewayHostKey("a.com:80", ("a.com", "b.com"), (), True)]


def test_redirecting_hosts_do_not_collapse_with_others() -> None:
    hosts = plan(
        [server("a.com", redirects=True), server("b.com", gateway=OTHER)],
        bound("vs", "a.com"),
        other=(bound("vs", "b.com"),),
    )
    assert [(h.name, h.redirects, h.sources) for h in hosts] == [
        ("a.com:80", True, (source("vs", tls=True),)),
        ("b.com:80", False, (source("vs", OTHER),)),
    ]


def test_host_redirects_if_one_of_its_servers_does() -> None:
    hosts = plan([server("a.com"), server("*", redirects=True)], bound("vs", "a.com"))
    assert [(h.domains, h.redirects, len(h.sources)) for h in hosts] == [(("*",), True, 0), (("a.com",), True, 2)]


def test_first_server_with_routes_wins() -> None:
    servers = [server("*", port=80), server("*", port=8080)]
    assert plan(servers, bound("vs", "a.com"))[0].sources == (source("vs"), source("vs"))
    expected = [GatewayHostKey("a.com:8080", ("a.com",), (source("vs", port=8080),), False)]
    assert plan(servers, bound("vs", "a.com", ports=frozenset({8080}))) == expected


def test_unbound_server_answers_404() -> None:
    assert plan([server("*")]) == [GatewayHostKey("blackhole:80", ("*",), (), False)]
    assert plan([server("*", port=443)], bound("vs", "a.com", ports=frozenset())) == [
        GatewayHostKey("blackhole:443", ("*",), (), False)
    ]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (["*.foo.com"], ["a.foo.com", "b.bar.com"], ["a.foo.com"]),
        (["a.foo.com", "b.foo.com"], ["*.foo.com"], ["a.foo.com", "b.foo.com"]),
        (["*"], ["*.com"], ["*.com"]),
        (["*.net"], ["*.com"], []),
        (["a.com", "*.com"], ["a.com"], ["a.com"]),
    ],
)
def test_host_intersection(first: list[str], second: list[str], shared: list[str]) -> None:
    assert list(run_steps(intersect_hosts_in_steps(first, second))) == shared


def test_many_hosts_of_servers_and_virtual_services_are_intersected_in_linear_time() -> None:
    first = [f"h{i}.example.com" for i in range(100_000)] + ["*.wide.com"]
    second = [*reversed(first[:-1]), "a.wide.com", "other.com"]
    assert list(run_steps(intersect_hosts_in_steps(first, second))) == [*first[:-1], "a.wide.com"]


@pytest.mark.parametrize("seed", range(50))
def test_long_and_short_lists_of_hosts_have_the_same_intersection(seed: int) -> None:
    chance = random.Random(seed)
    names = ["*", "*.com", "*.a.com", "*a.com", "a.com", "b.a.com", "c.b.a.com", "*.b.a.com", "net", "*.net"]
    first, second = (chance.sample(names, chance.randrange(1, 8)) for _ in range(2))
    assert set(run_steps(intersect_hosts_in_steps(first * 100, second))) == set(
        run_steps(intersect_hosts_in_steps(first, second))
    )


def test_hosts_of_a_namespace() -> None:
    assert hosts_for_namespace(["a", "ns/b", "other/c", "*/d"], "ns") == ["a", "b", "d"]
