"""Which Sidecar applies to a workload, and which services its egress listeners import."""

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
def test_which_sidecar(objects: list[tuple[str, str, str, int]], expected: str | None) -> None:
    egress = "egress: [{hosts: ['*/*']}]"
    mesh = world(
        *(sidecar(name, ", ".join(filter(None, (spec, egress))), ns, day) for name, spec, ns, day in objects)
    ).mesh
    found = sidecar_of(mesh, "a", WEB)
    assert (f"{found.namespace}/{found.name}" if found is not None else None) == expected


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
def test_hosts_of_a_listener(hosts: list[str], expected: tuple[Any, ...]) -> None:
    assert parse_hosts(hosts, "a").by_namespace == expected


def test_wildcards_import_wildcards_that_they_cover() -> None:
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


def imported(*objects: Any, egress: str = "", namespace: str = "a") -> list[tuple[str, str, tuple[int, ...] | None]]:
    """What the first egress listener of the namespace's Sidecar imports: host, namespace and ports."""
    made = world(*SHOP, *objects, *([sidecar("s", f"egress: {egress}", namespace)] if egress else []))
    scope = ScopeFacet(namespace, sidecar_of(made.mesh, namespace, frozenset()))
    return [(i.ref.hostname, i.ref.namespace, i.ports) for i in egress_services(made.mesh, scope, 0)]


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
    assert [host for host, _, _ in imported(egress=egress)] == expected


def test_a_port_of_a_listener_limits_the_ports() -> None:
    assert imported(egress="[{port: {number: 80, protocol: HTTP, name: h}, hosts: ['*/*']}]") == [
        (X, "a", (80,)),
        (Y, "b", None),
    ]
    assert [
        h for h, _, _ in imported(egress="[{port: {number: 80, protocol: HTTP_PROXY, name: h}, hosts: ['*/*']}]")
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
def test_what_is_exported_by_name_comes_first_among_wildcards(egress: str, expected: list[str]) -> None:
    private = entry(f"hosts: [w.com], resolution: DNS, exportTo: ['.'], {HTTP_PORT}", "w", "a", day=9)
    assert [host for host, _, _ in imported(private, egress=egress)] == expected


def test_one_namespace_for_a_host_name() -> None:
    """The own namespace's before Kubernetes' own before the oldest."""
    of_b = entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", "b", day=1)
    of_c = entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", "c", day=2)
    of_a = entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", "a", day=3)
    assert ("q.com", "b", None) in imported(of_b, of_c)
    assert ("q.com", "a", None) in imported(of_b, of_c, of_a)
    squat = entry(f"hosts: [{Y}], resolution: DNS, {HTTP_PORT}", "squat", "c", day=1)
    assert [(h, n) for h, n, _ in imported(squat)] == [(X, "a"), (Y, "b")]


def scoped(*objects: Any, egress: str, **environ: str) -> dict[str, ImportKey]:
    made = world(*SHOP, *objects, sidecar("s", f"egress: {egress}"), **environ)
    scope = ScopeFacet("a", sidecar_of(made.mesh, "a", frozenset()))
    return dict(scope_services(made.mesh, scope))


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
def test_services_that_routes_lead_to_are_in_scope(to: str, ports: Any) -> None:
    found = scoped(virtual_service(to), egress="[{hosts: ['./*']}]")
    assert (found[Y].ports if Y in found else "absent") == ports


@pytest.mark.parametrize(("best", "namespace"), [("true", "c"), ("false", "b")])
def test_which_service_a_route_to_a_host_of_several_namespaces_means(best: str, namespace: str) -> None:
    entries = [
        entry(f"hosts: [q.com], resolution: DNS, {HTTP_PORT}", "q", n, day=day) for n, day in (("b", 3), ("c", 2))
    ]
    found = scoped(
        *entries,
        virtual_service("{host: q.com}"),
        egress="[{hosts: ['./*']}]",
        PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE=best,
    )
    assert found["q.com"].ref.namespace == namespace


def test_a_route_to_a_port_brings_that_port_alone() -> None:
    ports = "[{name: http, port: 80}, {name: tcp, port: 90}]"
    many = service("w", ports, "10.96.0.9", "b")
    found = scoped(
        many, virtual_service("{host: w.b.svc.cluster.local, port: {number: 90}}"), egress="[{hosts: ['./*']}]"
    )
    assert found["w.b.svc.cluster.local"].ports == (90,)


def test_ports_of_several_listeners_add_up() -> None:
    egress = "[{port: {number: 90, protocol: TCP, name: t}, hosts: ['./*']}, {port: {number: 80, protocol: HTTP, name: h}, hosts: ['./*']}]"
    assert scoped(egress=egress)[X].ports == (90, 80)


def test_leads_of_other_namespaces_do_not_count() -> None:
    rule = f"{{match: [{{sourceNamespace: other}}], route: [{{destination: {{host: {Y}}}}}]}}"
    made = make("VirtualService", "v", f"{{hosts: [x], http: [{rule}, {{route: [{{destination: {{host: x}}}}]}}]}}")
    assert Y not in scoped(made, egress="[{hosts: ['./*']}]")


@pytest.mark.parametrize(
    ("spec", "mesh", "mode"),
    [
        ("egress: [{hosts: ['*/*']}]", "", "ALLOW_ANY"),
        ("egress: [{hosts: ['*/*']}]", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "REGISTRY_ONLY"),
        ("outboundTrafficPolicy: {}", "", "REGISTRY_ONLY"),
    ],
)
def test_what_happens_to_unknown_traffic(spec: str, mesh: str, mode: str) -> None:
    made = world(sidecar("s", spec), mesh_config=mesh).mesh
    assert outbound_traffic_policy(made, ScopeFacet("a", sidecar_of(made, "a", frozenset()))).mode == mode


def test_a_service_out_of_sight_costs_nothing() -> None:
    made = world(*SHOP, sidecar("s", "egress: [{hosts: ['./*']}]"))
    scope = ScopeFacet("a", sidecar_of(made.mesh, "a", frozenset()))
    watched = made.mesh.watch(scope_services, scope)
    runs: list[str] = []
    made.mesh.on_run = lambda node: runs.append(str(node.fn))
    made.set(
        rows_of(
            [
                service("far", "[{name: http, port: 80}]", "10.96.9.9", "b"),
                entry(f"hosts: [far.com], {HTTP_PORT}", "far", "c"),
            ]
        )
    )
    made.mesh.refresh(watched)
    assert runs == []
