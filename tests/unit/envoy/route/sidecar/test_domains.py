"""Domains of virtual hosts: short names, addresses and conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.envoy.route.sidecar.domains import (
    NAMESPACE_MARK,
    DomainClaim,
    Domains,
    build_domains,
    kubernetes_namespace,
    relevant_dns_domain,
    resolve_conflicts,
    short_names,
    without_namespace,
)
from pilot.mesh.model.service import Port, Registry, Resolution, Service
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet, bound_addresses, virtual_addresses

LOCAL = "prod.svc.cluster.local"


def service(hostname: str = "reviews.prod.svc.cluster.local", **fields: Any) -> Service:
    defaults = {
        "namespace": "prod",
        "name": "reviews",
        "registry": Registry.KUBERNETES,
        "source": ObjectKey("prod", "reviews"),
        "ports": (Port("http", 80, Protocol.HTTP),),
        "resolution": Resolution.CLIENT_SIDE_LB,
        **fields,
    }
    return Service(hostname=hostname, **defaults)


@pytest.mark.parametrize(
    ("hostname", "dns_domain", "expected"),
    [
        ("reviews.prod.svc.cluster.local", "prod.svc.cluster.local", ("reviews", "reviews.prod.svc", "reviews.prod")),
        ("reviews.prod.svc.cluster.local", "test.svc.cluster.local", ("reviews.prod", "reviews.prod.svc")),
        ("reviews.prod.svc.cluster.local", ".svc.cluster.local", ("reviews.prod", "reviews.prod.svc")),
        ("reviews.prod.svc.other.local", "prod.svc.cluster.local", ()),
        ("www.example.com", "prod.svc.cluster.local", ()),
        ("prod.svc.cluster.local", "prod.svc.cluster.local", ()),
        ("foo.local.campus.net", "local.campus.net", ("foo",)),
        ("foo.local.campus.net", "remote.campus.net", ("foo.local", "foo.local.campus")),
        ("foo.local.campus.net", "example.com", ()),
        ("foo.local.campus.net", "", ()),
    ],
)
def test_short_names(hostname: str, dns_domain: str, expected: tuple[str, ...]) -> None:
    assert short_names(hostname, dns_domain) == expected


def test_dns_domains_without_namespace_are_equal() -> None:
    assert (
        without_namespace("prod.svc.cluster.local")
        == without_namespace("test.svc.cluster.local")
        == ".svc.cluster.local"
    )
    assert without_namespace("local.campus.net") == "local.campus.net"
    assert relevant_dns_domain(LOCAL, "reviews.prod.svc.cluster.local") == LOCAL
    assert (
        relevant_dns_domain(LOCAL, "reviews.test.svc.cluster.local")
        == relevant_dns_domain(LOCAL, "www.example.com")
        == ".svc.cluster.local"
    )
    assert kubernetes_namespace("reviews.prod.svc.cluster.local") == "prod"
    assert kubernetes_namespace("www.example.com") == ""


@pytest.mark.parametrize(
    ("declared_service", "dns_domain", "port", "expected"),
    [
        (
            service(addresses=("10.0.0.1",)),
            LOCAL,
            0,
            [
                "reviews.prod.svc.cluster.local",
                "reviews.prod.svc.cluster.local.",
                "reviews",
                "reviews.prod.svc",
                "reviews.prod",
                "10.0.0.1",
            ],
        ),
        (service("www.Example.com"), LOCAL, 0, ["www.example.com", "www.example.com."]),
        (
            service("www.example.com"),
            LOCAL,
            8080,
            ["www.example.com", "www.example.com:8080", "www.example.com.", "www.example.com.:8080"],
        ),
        (service("10.0.0.9", addresses=("10.0.0.9",)), LOCAL, 0, ["10.0.0.9"]),
        (service("a.com", addresses=("fd00::1",)), LOCAL, 0, ["a.com", "a.com."]),
        (service("a.com", resolution=Resolution.PASSTHROUGH), LOCAL, 0, ["a.com", "a.com.", "*.a.com", "*.a.com."]),
        (
            service("a.com", resolution=Resolution.PASSTHROUGH, registry=Registry.EXTERNAL),
            LOCAL,
            0,
            ["a.com", "a.com."],
        ),
    ],
)
def test_domains(declared_service: Service, dns_domain: str, port: int, expected: list[str]) -> None:
    assert list(build_domains(declared_service, (), dns_domain, AddressFamiliesFacet(), True, port).names) == expected


def test_aliases_add_domains() -> None:
    domains = build_domains(service("a.com"), ("b.com",), LOCAL, AddressFamiliesFacet(), True)
    assert domains.names == ("a.com", "a.com.", "b.com", "b.com.")
    assert domains.short == {"a.com.", "b.com."}
    assert build_domains(service("a.com"), (), LOCAL, AddressFamiliesFacet(), False).names == ("a.com",)


V4, V6 = "10.0.0.1", "fd00::1"


@pytest.mark.parametrize(
    ("fields", "families", "single", "expected"),
    [
        ({"addresses": (V4, V6)}, AddressFamiliesFacet(), True, (V4,)),
        ({"addresses": (V4, V6)}, AddressFamiliesFacet(ipv4=False, ipv6=True), True, (V6,)),
        ({"addresses": (V6, V4)}, AddressFamiliesFacet(ipv6=True), True, (V6,)),
        ({"addresses": (V4, V6)}, AddressFamiliesFacet(ipv6=True, dual=True), True, (V4, V6)),
        ({"addresses": (V6,)}, AddressFamiliesFacet(), True, ()),
        ({"addresses": (V4, "10.0.0.2"), "registry": Registry.EXTERNAL}, AddressFamiliesFacet(), True, ("10.0.0.2",)),
        ({"addresses": (V4, V6), "registry": Registry.EXTERNAL}, AddressFamiliesFacet(), True, (V4,)),
        (
            {"addresses": (V6, V4), "registry": Registry.EXTERNAL},
            AddressFamiliesFacet(ipv4=False, ipv6=True),
            True,
            (V6,),
        ),
        ({"addresses": (V4, V6), "registry": Registry.EXTERNAL}, AddressFamiliesFacet(ipv6=True), True, (V6,)),
        ({"addresses": (V6,), "registry": Registry.EXTERNAL}, AddressFamiliesFacet(), True, (V6,)),
        ({"auto_addresses": (V4, V6), "registry": Registry.EXTERNAL}, AddressFamiliesFacet(), True, ()),
        (
            {"auto_addresses": (V6, V4), "registry": Registry.EXTERNAL},
            AddressFamiliesFacet(ipv6=True, auto=True),
            True,
            (V4,),
        ),
        (
            {"auto_addresses": (V6,), "registry": Registry.EXTERNAL},
            AddressFamiliesFacet(ipv6=True, auto=True),
            True,
            (V6,),
        ),
        (
            {"auto_addresses": (V4, V6), "registry": Registry.EXTERNAL},
            AddressFamiliesFacet(ipv6=True, dual=True, auto=True),
            False,
            (V4, V6),
        ),
        (
            {"addresses": (V4,), "auto_addresses": (V6,), "registry": Registry.EXTERNAL},
            AddressFamiliesFacet(auto=True),
            True,
            (V4,),
        ),
    ],
)
def test_virtual_addresses(
    fields: dict[str, Any], families: AddressFamiliesFacet, single: bool, expected: tuple[str, ...]
) -> None:
    assert virtual_addresses(service(**fields), families, single) == expected


V4B, V6B = "10.0.0.2", "fd00::2"
BOTH, SIX = AddressFamiliesFacet(ipv6=True), AddressFamiliesFacet(ipv4=False, ipv6=True)
DUAL, EXTERNAL = AddressFamiliesFacet(ipv6=True, dual=True), {"registry": Registry.EXTERNAL}


@pytest.mark.parametrize(
    ("fields", "families", "expected"),
    [
        ({}, AddressFamiliesFacet(), [("0.0.0.0",)]),
        ({"addresses": (V4, V4B, "10.0.0.3")}, AddressFamiliesFacet(), [(V4, V4B, "10.0.0.3")]),
        ({"addresses": (V4, V6, V4B)}, AddressFamiliesFacet(), [(V4, V4B)]),
        ({"addresses": (V4, V6, V6B)}, SIX, [(V6, V6B)]),
        ({"addresses": (V4, V6, V4B)}, BOTH, [(V4, V4B)]),
        ({"addresses": (V6, V4, V6B)}, BOTH, [(V6, V6B)]),
        ({"addresses": (V4, V6, V4B)}, DUAL, [(V4, V6, V4B)]),
        ({"addresses": (V6,)}, AddressFamiliesFacet(), [(V6,)]),
        ({"addresses": (V4, V6)} | EXTERNAL, AddressFamiliesFacet(), [(V4,), (V6,)]),
        ({"auto_addresses": (V6, V4)} | EXTERNAL, AddressFamiliesFacet(), [("0.0.0.0",)]),
        ({"auto_addresses": (V6, V4)} | EXTERNAL, replace(BOTH, auto=True), [(V4,)]),
        ({"auto_addresses": (V6, V4)} | EXTERNAL, replace(DUAL, auto=True), [(V4, V6)]),
        ({"auto_addresses": (V4,)} | EXTERNAL, replace(SIX, auto=True), [("0.0.0.0",)]),
        (
            {"addresses": (V4,), "cluster_addresses": (("a", (V4,)), ("b", (V4B,)))},
            AddressFamiliesFacet(cluster="b"),
            [(V4B,)],
        ),
    ],
)
def test_bound_addresses(
    fields: dict[str, Any], families: AddressFamiliesFacet, expected: list[tuple[str, ...]]
) -> None:
    assert bound_addresses(service(**fields), families) == expected


# -- conflicts -------------------------------------------------------------------------------------------------------------


def claim(host: str, *names: str, port: int = 80, short: tuple[str, ...] = (), is_service: bool = True) -> DomainClaim:
    return DomainClaim((host, port), is_service, Domains(names, frozenset(short)))


def test_first_claim_wins() -> None:
    first, second = claim("a", "a", "10.0.0.1"), claim("b", "b", "10.0.0.1")
    assert resolve_conflicts([first, second], frozenset(("10.0.0.1",))) == {("b", 80): ("10.0.0.1",)}
    assert resolve_conflicts([second, first], frozenset(("10.0.0.1",))) == {("a", 80): ("10.0.0.1",)}


def test_domains_are_case_insensitive() -> None:
    assert resolve_conflicts([claim("a", "x.com"), claim("b", "X.com")], frozenset(("x.com",))) == {
        ("b", 80): ("X.com",)
    }


def test_short_name_yields_to_a_service_with_that_hostname() -> None:
    long = claim("foo.com.svc.x", "foo.com.svc.x", "foo.com", short=("foo.com",))
    assert resolve_conflicts([long, claim("foo.com", "foo.com")], frozenset(("foo.com",))) == {
        ("foo.com.svc.x", 80): ("foo.com",)
    }
    assert resolve_conflicts([long, claim("foo.com", "foo.com", is_service=False)], frozenset(("foo.com",))) == {
        ("foo.com", 80): ("foo.com",)
    }


def test_short_names_conflict_only_within_a_namespace() -> None:
    claims = [
        claim("a", f"x{NAMESPACE_MARK}one"),
        claim("b", f"x{NAMESPACE_MARK}two"),
        claim("c", f"x{NAMESPACE_MARK}one"),
    ]
    assert resolve_conflicts(claims, frozenset()) == {("c", 80): ("x",)}


def test_names_without_port_belong_to_port_80_if_all_ports_are_served() -> None:
    claims = [claim("a", "a", "a:8080", port=8080), claim("b", "b", "b:80")]
    assert resolve_conflicts(claims, None) == {("a", 8080): ("a",)}
    assert resolve_conflicts([claim("a", "a", "a:8080", port=8080), claim("a", "a", "a:80")], None) == {
        ("a", 8080): ("a",),
        ("a", 80): ("a",),
    }
