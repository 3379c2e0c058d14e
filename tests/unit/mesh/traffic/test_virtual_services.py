"""VirtualServices: qualified names, delegates, visibility and order."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.object import ObjectKey
from pilot.config.problem import Problem
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.scope.egress_hosts import parse_hosts
from pilot.mesh.traffic.delegation import MAX_MERGED_PAIRS
from pilot.mesh.traffic.virtual_service_names import qualify_gateway
from pilot.mesh.traffic.virtual_services import (
    MAX_GATEWAYS,
    ViewerKey,
    check_delegates,
    egress_virtual_services,
    qualified,
    viewers,
    virtual_service,
    virtual_services_for,
    virtual_services_of,
)
from testing.mesh.problems import problems_of
from testing.mesh.world import World

VIRTUAL_SERVICE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: "2026-01-01T00:00:0{age}Z"}}
spec: {{{spec}}}
---
"""
TO = "http: [{route: [{destination: {host: reviews}}]}]"


def manifest(name: str, namespace: str, spec: str, age: int = 0) -> str:
    return VIRTUAL_SERVICE.format(name=name, namespace=namespace, spec=spec, age=age)


def world(*objects: str, mesh_config: str = "") -> World:
    harness = World(mesh_config)
    harness.apply("".join(objects))
    return harness


def names(keys: tuple[ObjectKey, ...]) -> list[str]:
    return [key.name for key in keys]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gw", "ns/gw"),
        ("other/gw", "other/gw"),
        ("./gw", "ns/gw"),
        ("gw.other.svc.local", "other/gw"),
        ("gw.other", "other/gw"),
        ("mesh", "mesh"),
    ],
)
def test_qualify_gateway(name: str, expected: str) -> None:
    assert qualify_gateway(name, "ns") == expected


def test_short_names_are_qualified() -> None:
    spec = """hosts: [reviews, ext.com], gateways: [gw], http: [{match: [{gateways: [gw]}],
      route: [{destination: {host: a}, weight: 50}, {destination: {host: b.c}, weight: 50}], mirror: {host: m}},
      {route: [{destination: {host: a}}], mirrors: [{destination: {host: n}}]}],
      tcp: [{route: [{destination: {host: t}}]}], tls: [{match: [{sniHosts: [ext.com], gateways: [gw]}], route: [{destination: {host: u}}]}]"""
    qualified_service = virtual_service(world(manifest("v", "ns", spec)).mesh, ObjectKey("ns", "v"))
    assert qualified_service is not None
    suffix = "ns.svc.cluster.local"
    rule = qualified_service.spec.http[0]
    assert qualified_service.spec.hosts == (f"reviews.{suffix}", "ext.com")
    assert qualified_service.spec.gateways == rule.match[0].gateways == ("ns/gw",)
    routes: list[Any] = [*rule.route, *qualified_service.spec.tcp[0].route, *qualified_service.spec.tls[0].route]
    destinations = [route.destination for route in routes]
    assert [d.host for d in destinations if d] == [f"a.{suffix}", "b.c", f"t.{suffix}", f"u.{suffix}"]
    assert rule.mirror is not None
    assert rule.mirror.host == f"m.{suffix}"
    (mirror,) = qualified_service.spec.http[1].mirrors
    assert mirror.destination is not None
    assert mirror.destination.host == f"n.{suffix}"


ROOT = "hosts: [shop.com], http: [{match: [{uri: {prefix: /a}}], delegate: {name: leaf, namespace: team}}, {directResponse: {status: 404}}]"


def rules_of(virtual_service: Any) -> list[str]:
    return [r.name or "-" for r in virtual_service.spec.http]


def delegate_problems(harness: World) -> list[Problem]:
    root = qualified(harness.mesh, ObjectKey("ns", "root"))
    assert root is not None
    return list(check_delegates(harness.mesh, root))


def test_delegates_replace_their_route() -> None:
    leaf = manifest(
        "leaf",
        "team",
        "http: [{name: one, route: [{destination: {host: r}}]}, {name: two, route: [{destination: {host: s}}]}]",
    )
    harness = world(manifest("root", "ns", ROOT), leaf)
    merged = virtual_service(harness.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert rules_of(merged) == ["one", "two", "-"]
    assert merged.spec.http[0].route[0].destination.host == "r.team.svc.cluster.local"
    assert virtual_service(harness.mesh, ObjectKey("team", "leaf")) is None
    assert delegate_problems(harness) == []


@pytest.mark.parametrize(
    ("leaf", "reason"),
    [
        ("", "VirtualService team/leaf not found"),
        (manifest("leaf", "team", "hosts: [x.com], " + TO), "has hosts"),
        (manifest("leaf", "team", 'exportTo: ["."], ' + TO), "not exported"),
        (
            manifest("leaf", "team", "http: [{match: [{uri: {prefix: /b}}], route: [{destination: {host: r}}]}]"),
            "contradict",
        ),
    ],
)
def test_rule_with_an_invalid_delegate_is_dropped_and_reported(leaf: str, reason: str) -> None:
    harness = world(manifest("root", "ns", ROOT), *([leaf] if leaf else []))
    merged = virtual_service(harness.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert rules_of(merged) == ["-"]
    (problem,) = delegate_problems(harness)
    assert reason in problem.message
    assert problem.path == "http[0].delegate"
    assert not harness.failures


def test_self_delegation_terminates() -> None:
    harness = world(manifest("root", "ns", "hosts: [shop.com], http: [{delegate: {name: root}}]"))
    merged = virtual_service(harness.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert merged.spec.http == ()


COMPETING = (
    manifest("public-new", "b", "hosts: [x.com], " + TO, age=5),
    manifest("public-old", "c", "hosts: [x.com], " + TO, age=1),
    manifest("private", "a", 'hosts: [x.com], exportTo: ["."], ' + TO, age=9),
    manifest("for-a", "b", "hosts: [x.com], exportTo: [a], " + TO, age=8),
    manifest("gateway", "b", "hosts: [x.com], gateways: [gw], " + TO, age=0),
)


def test_order_is_private_then_exported_then_public_by_age() -> None:
    harness = world(*COMPETING)
    assert names(virtual_services_for(harness.mesh, "a", "mesh")) == ["private", "for-a", "public-old", "public-new"]
    assert names(virtual_services_for(harness.mesh, "b", "mesh")) == ["public-old", "public-new"]
    assert names(virtual_services_for(harness.mesh, "b", "b/gw")) == ["gateway"]
    assert names(virtual_services_of(harness.mesh, "x.com", "b", ViewerKey("a"))) == [
        "private",
        "for-a",
        "public-old",
        "public-new",
    ]
    assert names(virtual_services_of(harness.mesh, "x.com", "b", ViewerKey(""))) == ["public-old", "public-new"]
    assert viewers(harness.mesh) == {"a"}


def test_default_export_to_of_the_mesh() -> None:
    harness = world(manifest("v", "a", "hosts: [x.com], " + TO), mesh_config="defaultVirtualServiceExportTo: ['.']")
    assert names(virtual_services_for(harness.mesh, "a", "mesh")) == ["v"]
    assert names(virtual_services_for(harness.mesh, "b", "mesh")) == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("a.x.com", ["exact"]),
        ("b.x.com", ["near"]),
        ("b.c.x.com", ["near"]),
        ("b.com", ["far"]),
        ("*.x.com", ["near"]),
        ("b.org", []),
    ],
)
def test_exact_host_wins_over_the_longest_wildcard(host: str, expected: list[str]) -> None:
    harness = world(
        manifest("far", "a", "hosts: ['*.com'], " + TO),
        manifest("near", "a", "hosts: ['*.x.com'], " + TO, age=1),
        manifest("later", "a", "hosts: ['*.x.com'], " + TO, age=2),
        manifest("exact", "a", "hosts: [a.x.com], " + TO, age=3),
    )
    assert names(virtual_services_of(harness.mesh, host, "b", ViewerKey(""))) == expected


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["*/*"], ["in-a", "in-b", "wild-b"]),
        (["./*"], ["in-a"]),
        (["b/*"], ["in-b", "wild-b"]),
        (["b/b.x.com"], ["in-b", "wild-b"]),
        (["*/a.x.com"], ["in-a", "wild-b"]),
        (["b/*", "~b/b.x.com"], ["wild-b"]),
        (["*/*", "~*/*.x.com"], []),
        (["c/*"], []),
    ],
)
def test_sidecar_imports(hosts: list[str], expected: list[str]) -> None:
    sidecar = f"""
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: default, namespace: a}}
spec: {{egress: [{{hosts: {hosts}}}]}}
"""
    harness = world(
        manifest("in-a", "a", "hosts: [a.x.com], " + TO, age=1),
        manifest("in-b", "b", "hosts: [b.x.com], " + TO, age=2),
        manifest("wild-b", "b", "hosts: ['*.x.com'], " + TO, age=3),
        sidecar,
    )
    scope = ScopeFacet("a", ObjectKey("a", "default"))
    assert names(egress_virtual_services(harness.mesh, scope, 0)) == expected
    sets = parse_hosts(hosts, "a")
    matches = set(names(virtual_services_of(harness.mesh, "a.x.com", "b", ViewerKey("a", sets))))
    assert matches == ({"in-a"} & set(expected) or ({"wild-b"} & set(expected)))


def test_delegates_with_too_many_combinations_of_matches_are_ignored_and_reported() -> None:
    matches = ", ".join(f"{{uri: {{prefix: /a/{n}}}}}" for n in range(100))
    leaf = manifest("leaf", "team", f"http: [{{match: [{matches}], route: [{{destination: {{host: reviews}}}}]}}]")
    rules = ", ".join(
        f"{{match: [{', '.join(['{uri: {prefix: /a}}'] * 40)}], delegate: {{name: leaf, namespace: team}}}}"
        for _ in range(3)
    )
    harness = world(leaf, manifest("root", "ns", f"hosts: [shop.com], http: [{rules}]"))
    merged = virtual_service(harness.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert [len(rule.match) for rule in merged.spec.http] == [4000, 4000]
    (problem,) = delegate_problems(harness)
    assert problem.path == "http[2].delegate"
    assert f"at most {MAX_MERGED_PAIRS}" in problem.message


def test_virtual_service_is_bound_to_a_limited_number_of_gateways() -> None:
    names = [f"g{n}" for n in range(MAX_GATEWAYS + 1)]
    harness = world(manifest("vs", "ns", f"hosts: [shop.com], gateways: [{', '.join(names)}], {TO}"))
    bound = [bool(virtual_services_for(harness.mesh, "ns", f"ns/{name}")) for name in names]
    assert bound == [True] * MAX_GATEWAYS + [False]
    problems = [problem for problem in problems_of(harness) if problem.code == "too-many"]
    assert [(problem.object.name, problem.path) for problem in problems] == [("vs", "spec.gateways")]
