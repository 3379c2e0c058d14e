"""VirtualServices: whole names, delegates, who sees which, and in what order."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.object import ObjectKey
from pilot.config.problem import Problem
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.scope.egress_hosts import parse_hosts
from pilot.mesh.traffic.virtual_service_names import qualify_gateway
from pilot.mesh.traffic.virtual_services import (
    ViewerKey,
    check_delegates,
    egress_virtual_services,
    qualified,
    viewers,
    virtual_service,
    virtual_services_for,
    virtual_services_of,
)
from testing.mesh.world import World

VIRTUAL_SERVICE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: "2026-01-01T00:00:0{age}Z"}}
spec: {{{spec}}}
---
"""
TO = "http: [{route: [{destination: {host: reviews}}]}]"


def written(name: str, namespace: str, spec: str, age: int = 0) -> str:
    return VIRTUAL_SERVICE.format(name=name, namespace=namespace, spec=spec, age=age)


def world(*objects: str, mesh_config: str = "") -> World:
    found = World(mesh_config)
    found.apply("".join(objects))
    return found


def names(keys: tuple[ObjectKey, ...]) -> list[str]:
    return [key.name for key in keys]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("gw", "ns/gw"),
        ("other/gw", "other/gw"),
        ("./gw", "ns/gw"),
        ("gw.other.svc.local", "other/gw"),
        ("gw.other", "other/gw"),
        ("mesh", "mesh"),
    ],
)
def test_gateway_names(written: str, expected: str) -> None:
    assert qualify_gateway(written, "ns") == expected


def test_whole_names() -> None:
    spec = """hosts: [reviews, ext.com], gateways: [gw], http: [{match: [{gateways: [gw]}],
      route: [{destination: {host: a}, weight: 50}, {destination: {host: b.c}, weight: 50}], mirror: {host: m}},
      {route: [{destination: {host: a}}], mirrors: [{destination: {host: n}}]}],
      tcp: [{route: [{destination: {host: t}}]}], tls: [{match: [{sniHosts: [ext.com], gateways: [gw]}], route: [{destination: {host: u}}]}]"""
    found = virtual_service(world(written("v", "ns", spec)).mesh, ObjectKey("ns", "v"))
    assert found is not None
    suffix = "ns.svc.cluster.local"
    rule = found.spec.http[0]
    assert found.spec.hosts == (f"reviews.{suffix}", "ext.com")
    assert found.spec.gateways == rule.match[0].gateways == ("ns/gw",)
    routes: list[Any] = [*rule.route, *found.spec.tcp[0].route, *found.spec.tls[0].route]
    leads = [route.destination for route in routes]
    assert [d.host for d in leads if d] == [f"a.{suffix}", "b.c", f"t.{suffix}", f"u.{suffix}"]
    assert rule.mirror is not None
    assert rule.mirror.host == f"m.{suffix}"
    (mirror,) = found.spec.http[1].mirrors
    assert mirror.destination is not None
    assert mirror.destination.host == f"n.{suffix}"


ROOT = "hosts: [shop.com], http: [{match: [{uri: {prefix: /a}}], delegate: {name: leaf, namespace: team}}, {directResponse: {status: 404}}]"


def rules_of(found: Any) -> list[str]:
    return [r.name or "-" for r in found.spec.http]


def delegate_problems(found: World) -> list[Problem]:
    root = qualified(found.mesh, ObjectKey("ns", "root"))
    assert root is not None
    return list(check_delegates(found.mesh, root))


def test_delegates_take_the_place_of_their_route() -> None:
    leaf = written(
        "leaf",
        "team",
        "http: [{name: one, route: [{destination: {host: r}}]}, {name: two, route: [{destination: {host: s}}]}]",
    )
    found = world(written("root", "ns", ROOT), leaf)
    merged = virtual_service(found.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert rules_of(merged) == ["one", "two", "-"]
    assert merged.spec.http[0].route[0].destination.host == "r.team.svc.cluster.local"
    assert virtual_service(found.mesh, ObjectKey("team", "leaf")) is None
    assert delegate_problems(found) == []


@pytest.mark.parametrize(
    ("leaf", "reason"),
    [
        ("", "VirtualService team/leaf not found"),
        (written("leaf", "team", "hosts: [x.com], " + TO), "has hosts"),
        (written("leaf", "team", 'exportTo: ["."], ' + TO), "not exported"),
        (
            written("leaf", "team", "http: [{match: [{uri: {prefix: /b}}], route: [{destination: {host: r}}]}]"),
            "contradict",
        ),
    ],
)
def test_a_rule_without_its_delegate_is_left_out_and_said(leaf: str, reason: str) -> None:
    found = world(written("root", "ns", ROOT), *([leaf] if leaf else []))
    merged = virtual_service(found.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert rules_of(merged) == ["-"]
    (problem,) = delegate_problems(found)
    assert reason in problem.message
    assert problem.path == "http[0].delegate"
    assert not found.failures


def test_a_delegate_that_delegates_to_itself_is_no_endless_loop() -> None:
    found = world(written("root", "ns", "hosts: [shop.com], http: [{delegate: {name: root}}]"))
    merged = virtual_service(found.mesh, ObjectKey("ns", "root"))
    assert merged is not None
    assert merged.spec.http == ()


COMPETING = (
    written("public-new", "b", "hosts: [x.com], " + TO, age=5),
    written("public-old", "c", "hosts: [x.com], " + TO, age=1),
    written("private", "a", 'hosts: [x.com], exportTo: ["."], ' + TO, age=9),
    written("for-a", "b", "hosts: [x.com], exportTo: [a], " + TO, age=8),
    written("gateway", "b", "hosts: [x.com], gateways: [gw], " + TO, age=0),
)


def test_private_ones_first_then_exported_then_public_by_age() -> None:
    found = world(*COMPETING)
    assert names(virtual_services_for(found.mesh, "a", "mesh")) == ["private", "for-a", "public-old", "public-new"]
    assert names(virtual_services_for(found.mesh, "b", "mesh")) == ["public-old", "public-new"]
    assert names(virtual_services_for(found.mesh, "b", "b/gw")) == ["gateway"]
    assert names(virtual_services_of(found.mesh, "x.com", "b", ViewerKey("a"))) == [
        "private",
        "for-a",
        "public-old",
        "public-new",
    ]
    assert names(virtual_services_of(found.mesh, "x.com", "b", ViewerKey(""))) == ["public-old", "public-new"]
    assert viewers(found.mesh) == {"a"}


def test_the_mesh_says_who_sees_what_says_nothing() -> None:
    found = world(written("v", "a", "hosts: [x.com], " + TO), mesh_config="defaultVirtualServiceExportTo: ['.']")
    assert names(virtual_services_for(found.mesh, "a", "mesh")) == ["v"]
    assert names(virtual_services_for(found.mesh, "b", "mesh")) == []


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
def test_exact_hosts_before_the_longest_wildcard(host: str, expected: list[str]) -> None:
    found = world(
        written("far", "a", "hosts: ['*.com'], " + TO),
        written("near", "a", "hosts: ['*.x.com'], " + TO, age=1),
        written("later", "a", "hosts: ['*.x.com'], " + TO, age=2),
        written("exact", "a", "hosts: [a.x.com], " + TO, age=3),
    )
    assert names(virtual_services_of(found.mesh, host, "b", ViewerKey(""))) == expected


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
def test_what_a_sidecar_imports(hosts: list[str], expected: list[str]) -> None:
    sidecar = f"""
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: default, namespace: a}}
spec: {{egress: [{{hosts: {hosts}}}]}}
"""
    found = world(
        written("in-a", "a", "hosts: [a.x.com], " + TO, age=1),
        written("in-b", "b", "hosts: [b.x.com], " + TO, age=2),
        written("wild-b", "b", "hosts: ['*.x.com'], " + TO, age=3),
        sidecar,
    )
    scope = ScopeFacet("a", ObjectKey("a", "default"))
    assert names(egress_virtual_services(found.mesh, scope, 0)) == expected
    sets = parse_hosts(hosts, "a")
    seen = set(names(virtual_services_of(found.mesh, "a.x.com", "b", ViewerKey("a", sets))))
    assert seen == ({"in-a"} & set(expected) or ({"wild-b"} & set(expected)))
