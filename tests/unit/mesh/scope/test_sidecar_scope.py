"""Sidecar selection for a workload, and the services imported by its egress listeners."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.scope.egress_hosts import HostSet, parse_hosts
from pilot.mesh.scope.sidecar_scope import outbound_traffic_policy, sidecar_of
from pilot.mesh.traffic.imports import ImportKey, egress_services, scope_services
from testing.mesh.listeners import entry, service
from testing.mesh.objects import make, world
from testing.mesh.world import rows_of


def sidecar(name: str, spec: str, namespace: str = "a", day: int = 1) -> dict[str, Any]:
    return make("Sidecar", name, f"{{{spec}}}", namespace, day)


WEB = frozenset({("app", "web"), ("version", "v1")})


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], None),
        ([("s", "", "a", 1)], "a/s"),
        ([("s", "", "b", 1)], None),
        ([("s", "", "istio-system", 1)], "istio-system/s"),
        ([("s", "", "istio-system", 1), ("t", "", "a", 2)], "a/t"),
        ([("s", "", "a", 1), ("t", "workloadSelector: {labels: {app: web}}", "a", 2)], "a/t"),
        ([("s", "", "a", 1), ("t", "workloadSelector: {labels: {app: api}}", "a", 2)], "a/s"),
        ([("s", "", "a", 2), ("t", "", "a", 1)], "a/t"),
        ([("s", "workloadSelector: {labels: {app: web}}", "istio-system", 1)], None),
    ],
)
def test_sidecar_selection(objects: list[tuple[str, str, str, int]], expected: str | None) -> None:
    egress = "egress: [{hosts: ['*/*']}]"
    mesh = world(
        *(sidecar(name, ", ".join(filter(None, (spec, egress))), ns, day) for name, spec, ns, day in objects)
    ).mesh
    key = sidecar_of(mesh, "a", WEB)
    assert (f"{key.namespace}/{key.name}" if key is not None else None) == expected


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["./x.com"], (("a", HostSet(("x.com",))),)),
        (["*/*", "~b/*"], (("*", HostSet(("*",))), ("b", HostSet((), ("*",))))),
        (["~/*"], (("*", HostSet((), ("*",))),)),
        (["b/x.com", "b/*.com", "~b/y.com"], (("b", HostSet(("x.com", "*.com"), ("y.com",))),)),
        (["nothing", "b/c/d"], ()),
    ],
)
def test_parse_hosts(hosts: list[str], expected: tuple[Any, ...]) -> None:
    assert parse_hosts(hosts, "a").by_namespace == expected


def test_wildcard_imports_narrower_wildcards() -> None:
    wild = HostSet(("*.example.com",))
    assert [wild.imports(h) for h in ("a.example.com", "*.b.example.com", "*.com", "example.com")] == [
        True,
        True,
        False,
        False,
    ]
    assert not HostSet(("a.example.com",)).imports("*.example.com")


X, Y = "x.a.svc.cluster.local", "y.b.svc.cluster.local"
SHOP = (
    service("x", "[{name: http, port: 80}, {name: tcp, port: 90}]"),
    service("y", "[{name: http, port: 80}]", "10.96.0.2", "b", day=2),
    service("z", "[{name: http, port: 80}]", "10.96.0.3", "c", annotations="{networking.istio.io/exportTo: c}"),
)


def imports(*objects: Any, egress: str = "", namespace: str = "a") -> list[tuple[str, str, tuple[int, ...] | None]]:
    """Return host, namespace and ports of each import of the first egress listener of the namespace's Sidecar."""
    harness = world(*SHOP, *objects, *([sidecar("s", f"egress: {egress}", namespace)] if egress else []))
    scope = ScopeFacet(namespace, sidecar_of(harness.mesh, namespace, frozenset()))
    return [(i.ref.hostname, i.ref.namespace, i.ports) for i in egress_services(harness.mesh, scope, 0)]


@pytest.mark.parametrize(
    ("egress", "expected"),
    [
        ("", [X, Y]),
        ("[{hosts: ['./*']}]", [X]),
        ("[{hosts: ['b/*', './*']}]", [X, Y]),
        ("[{hosts: ['*/y.b.svc.cluster.local']}]", [Y]),
        ("[{hosts: ['b/y.b.svc.cluster.local']}]", [Y]),
        ("[{hosts: ['c/*']}]", []),
        ("[{hosts: ['*/*.b.svc.cluster.local']}]", [Y]),
        ("[{hosts: ['*/*', '~./*']}]", [Y]),
        ("[{hosts: ['*/*', '~/y.b.svc.cluster.local']}]", [X]),
    ],
)
def test_imports(egress: str, expected: list[str]) -> None:
    assert [host for host, _, _ in imports(egress=egress)] == expected


def test_listener_port_limits_imported_ports() -> None:
    assert imports(egress="[{port: {number: 80, protocol: HTTP, name: h}, hosts: ['*/*']}]") == [
        (X, "a", (80,)),
        (Y, "b", None),
    ]
    assert [
        h for h, _, _ in imports(egress="[{port: {number: 80, protocol: HTTP_PROXY, name: h}, hosts: ['*/*']}]")
    ] == [X, Y]


HTTP_PORT = "ports: [{number: 80, name: http, protocol: HTTP}]"


@pytest.mark.parametrize(
    ("egress", "expected"),
    [
        ("[{hosts: ['./*']}]", ["w.com", X]),
        ("[{hosts: ['*/*']}]", ["w.com", X, Y]),
        (f"[{{hosts: ['a/{X}', 'a/w.com']}}]", [X, "w.com"]),
    ],
)
def test_privately_exported_service_is_imported_first(egress: str, expected: list[str]) -> None:
    private = entry(f"hosts: [w.com], resolution: DNS, exportTo: ['.'], {HTTP_PORT}", "w", "a", day=9)
    assert [host for host, _, _ in imports(private, egress=egress)] == expected


def test_one_namespace_per_hostname() -> None:
    """The local namespace wins, then the Kubernetes Service, then the oldest."""
    of_b = entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", "b", day=1)
    of_c = entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", "c", day=2)
    of_a = entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", "a", day=3)
    assert ("q.com", "b", None) in imports(of_b, of_c)
    assert ("q.com", "a", None) in imports(of_b, of_c, of_a)
    squat = entry(f"hosts: [{Y}], resolution: DNS, {HTTP_PORT}", "squat", "c", day=1)
    assert [(h, n) for h, n, _ in imports(squat)] == [(X, "a"), (Y, "b")]


@pytest.mark.parametrize(("gateway", "namespace"), [(False, "a"), (True, "b")])
def test_gateways_do_not_prefer_services_in_their_namespace(gateway: bool, namespace: str) -> None:
    entries = [
        entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", n, day=day) for n, day in (("a", 3), ("b", 2))
    ]
    assert scope_services(world(*entries).mesh, ScopeFacet("a", gateway=gateway))["q.com"].ref.namespace == namespace


def services_in_scope(*objects: Any, egress: str, **environ: str) -> dict[str, ImportKey]:
    harness = world(*SHOP, *objects, sidecar("s", f"egress: {egress}"), **environ)
    scope = ScopeFacet("a", sidecar_of(harness.mesh, "a", frozenset()))
    return dict(scope_services(harness.mesh, scope))


def virtual_service(to: str) -> dict[str, Any]:
    return make("VirtualService", "v", f"{{hosts: [x], http: [{{route: [{{destination: {to}}}]}}]}}")


@pytest.mark.parametrize(
    ("to", "ports"),
    [
        (f"{{host: {Y}}}", None),
        (f"{{host: {Y}, port: {{number: 80}}}}", None),
        (f"{{host: {Y}, port: {{number: 7}}}}", "absent"),
    ],
)
def test_route_destinations_are_in_scope(to: str, ports: Any) -> None:
    services = services_in_scope(virtual_service(to), egress="[{hosts: ['./*']}]")
    assert (services[Y].ports if Y in services else "absent") == ports


@pytest.mark.parametrize(("best", "namespace"), [("true", "c"), ("false", "b")])
def test_namespace_of_an_ambiguous_route_destination(best: str, namespace: str) -> None:
    entries = [
        entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", n, day=day) for n, day in (("b", 3), ("c", 2))
    ]
    services = services_in_scope(
        *entries,
        virtual_service("{host: q.com}"),
        egress="[{hosts: ['./*']}]",
        PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE=best,
    )
    assert services["q.com"].ref.namespace == namespace


def test_route_to_a_port_imports_only_that_port() -> None:
    ports = "[{name: http, port: 80}, {name: tcp, port: 90}]"
    many = service("w", ports, "10.96.0.9", "b")
    services = services_in_scope(
        many, virtual_service("{host: w.b.svc.cluster.local, port: {number: 90}}"), egress="[{hosts: ['./*']}]"
    )
    assert services["w.b.svc.cluster.local"].ports == (90,)


def test_ports_of_several_listeners_are_combined() -> None:
    egress = "[{port: {number: 90, protocol: TCP, name: t}, hosts: ['./*']}, {port: {number: 80, protocol: HTTP, name: h}, hosts: ['./*']}]"
    assert services_in_scope(egress=egress)[X].ports == (90, 80)


def test_routes_for_other_source_namespaces_are_ignored() -> None:
    rule = f"{{match: [{{sourceNamespace: other}}], route: [{{destination: {{host: {Y}}}}}]}}"
    route = make("VirtualService", "v", f"{{hosts: [x], http: [{rule}, {{route: [{{destination: {{host: x}}}}]}}]}}")
    assert Y not in services_in_scope(route, egress="[{hosts: ['./*']}]")


@pytest.mark.parametrize(
    ("spec", "mesh", "mode"),
    [
        ("egress: [{hosts: ['*/*']}]", "", "ALLOW_ANY"),
        ("egress: [{hosts: ['*/*']}]", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "REGISTRY_ONLY"),
        ("outboundTrafficPolicy: {}", "", "REGISTRY_ONLY"),
    ],
)
def test_outbound_traffic_policy(spec: str, mesh: str, mode: str) -> None:
    mesh_state = world(sidecar("s", spec), mesh_config=mesh).mesh
    assert outbound_traffic_policy(mesh_state, ScopeFacet("a", sidecar_of(mesh_state, "a", frozenset()))).mode == mode


def test_service_out_of_scope_does_not_recompute() -> None:
    harness = world(*SHOP, sidecar("s", "egress: [{hosts: ['./*']}]"))
    scope = ScopeFacet("a", sidecar_of(harness.mesh, "a", frozenset()))
    scope_node = harness.mesh.watch(scope_services, scope)
    derivations: list[str] = []
    harness.mesh.on_run = lambda node: derivations.append(str(node.fn))
    harness.set(
        rows_of(
            [
                service("far", "[{name: http, port: 80}]", "10.96.9.9", "b"),
                entry(f"hosts: [far.com], {HTTP_PORT}", "far", "c"),
            ]
        )
    )
    harness.mesh.refresh(scope_node)
    assert derivations == []
