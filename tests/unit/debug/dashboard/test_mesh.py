"""The graph of the dashboard: namespaces, services, gateways and links."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.debug.dashboard.mesh import (
    Link,
    MeshContext,
    MeshGraph,
    ServiceFacts,
    links_of_route,
    service_facts,
    show_graph,
)
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service_refs
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world

WEB, API, SHOP = "web.a.svc.cluster.local", "api.b.svc.cluster.local", "shop.example"
POLICIES = ("ALLOW a/p",)
GRAPH = MeshGraph(
    [
        ServiceFacts("b", API, (90,), 0, 0, None, ()),
        ServiceFacts("a", WEB, (80, 81), 1, 2, (("b", "x"), ("b", "y"), ("gone", "")), POLICIES),
        ServiceFacts("a", SHOP, (), 0, 3, (), ()),
    ],
    (ObjectKey("a", "g"), ObjectKey("b", "g")),
    [
        Link("gateway a/g", WEB, "a/r"),
        Link("gateway a/g", WEB, "a/s"),
        Link(SHOP, WEB, "a/r"),
        Link(WEB, WEB, "a/r"),
        Link("unknown.example", WEB, "a/r"),
        Link(SHOP, "unknown.example", "a/r"),
        Link("gateway a/g", "unknown.example", "a/r"),
    ],
)
OBJECTS = (
    (GroupKind(NETWORKING, kind), namespace, name)
    for kind, namespace, name in (
        ("Gateway", "a", "g"),
        ("VirtualService", "a", "web"),
        ("DestinationRule", "a", "web"),
        ("DestinationRule", "b", "web"),
        ("Sidecar", "a", "web"),
    )
)
CONTEXT = MeshContext([ObjectRef(*parts) for parts in OBJECTS], ["a", "a", "c"])


def row(
    namespace: str,
    host: str,
    ports: list[int],
    ready: int,
    total: int,
    problems: int,
    callers: Any,
    policies: tuple[str, ...] = (),
) -> Plain:
    return {
        "namespace": namespace,
        "host": host,
        "ports": tuple(ports),
        "ready": ready,
        "total": total,
        "callers": callers,
        "policies": policies,
        "problems": problems,
    }


def link(source: str, target: str, kind: str = "route", by: str = "", count: int = 1) -> Plain:
    return {"from": source, "to": target, "kind": kind, "by": by, "count": count}


def test_small_mesh_is_shown_in_full() -> None:
    assert show_graph(GRAPH, CONTEXT, frozenset()) == {
        "namespaces": [
            {
                "name": "a",
                "count": 2,
                "unready": 1,
                "problems": 4,
                "proxies": 2,
                "services": [
                    row("a", SHOP, [], 0, 3, 0, ()),
                    row("a", WEB, [80, 81], 1, 2, 2, (("b", "x"), ("b", "y"), ("gone", "")), POLICIES),
                ],
            },
            {
                "name": "b",
                "count": 1,
                "unready": 1,
                "problems": 1,
                "proxies": 0,
                "services": [row("b", API, [90], 0, 0, 0, None)],
            },
        ],
        "gateways": [{"namespace": "a", "name": "g", "problems": 1}, {"namespace": "b", "name": "g", "problems": 0}],
        "links": [
            link("gateway a/g", f"service {WEB}", by="a/r"),
            link("gateway a/g", f"service {WEB}", by="a/s"),
            link("namespace b", f"service {WEB}", "policy", count=2),
            link(f"service {SHOP}", f"service {WEB}", by="a/r"),
        ],
        "services": 3,
    }


def test_folded_namespaces_replace_their_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.debug.dashboard.mesh.WHOLE", 2)
    both = Link(API, WEB, "b/r"), Link(API, SHOP, "b/r")
    graph = GRAPH._replace(links=[*GRAPH.links, *both])
    folded = show_graph(graph, CONTEXT, frozenset({"c"}))
    assert [(namespace["name"], namespace["count"], namespace["services"]) for namespace in folded["namespaces"]] == [
        ("a", 2, []),
        ("b", 1, []),
    ]
    assert folded["links"] == [
        link("gateway a/g", "namespace a", by="a/r"),
        link("gateway a/g", "namespace a", by="a/s"),
        link("namespace b", "namespace a", "policy", count=2),
        link("namespace b", "namespace a", by="b/r", count=2),
    ]
    unfolded = show_graph(graph, CONTEXT, frozenset({"b"}))
    assert [(namespace["name"], len(namespace["services"])) for namespace in unfolded["namespaces"]] == [
        ("a", 0),
        ("b", 1),
    ]
    assert link(f"service {API}", "namespace a", by="b/r", count=2) in unfolded["links"]


def test_mesh_at_the_limit_is_shown_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.debug.dashboard.mesh.WHOLE", 3)
    assert [len(namespace["services"]) for namespace in show_graph(GRAPH, CONTEXT, frozenset())["namespaces"]] == [
        2,
        1,
    ]


def test_folded_namespace_has_no_link_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.debug.dashboard.mesh.WHOLE", 0)
    graph = MeshGraph([ServiceFacts("a", WEB, (80,), 1, 1, (("a", ""),), ())], (), [])
    assert show_graph(graph, CONTEXT, frozenset())["links"] == []
    assert show_graph(graph, CONTEXT, frozenset({"a"}))["links"] == [link("namespace a", f"service {WEB}", "policy")]


def test_service_facts() -> None:
    sources = "{source: {serviceAccounts: [x/y, z]}}, {source: {namespaces: [n], principals: [t/ns/n/sa/s]}}"
    objects = [
        service("web", "[{name: http, port: 80, targetPort: 8080}, {name: more, port: 81}]"),
        pod("web-0", "10.0.0.1", labels="{app: web}"),
        endpoint_slice("web", at("10.0.0.1", "web-0"), at("10.0.0.2", conditions="{ready: false}")),
        make("AuthorizationPolicy", "q", "{action: DENY, rules: [{}], selector: {matchLabels: {app: web}}}"),
        make("AuthorizationPolicy", "other", "{action: DENY, rules: [{}], selector: {matchLabels: {app: other}}}"),
        make("AuthorizationPolicy", "p", f"{{rules: [{{from: [{sources}]}}]}}", day=2),
        make("ServiceEntry", "bare", "{hosts: [bare.example], resolution: DNS, ports: [{number: 80, name: http}]}"),
    ]
    db = world(*objects).mesh
    facts = {ref.hostname: service_facts(db, ref) for ref in service_refs(db)}
    callers = (("x", "y"), ("a", "z"), ("n", ""), ("n", "s"))
    assert facts[WEB] == ("a", WEB, (80, 81), 1, 2, callers, ("DENY a/q", "ALLOW a/p"))
    assert facts["bare.example"] == ("a", "bare.example", (80,), 1, 1, callers, ("ALLOW a/p",))
    assert service_facts(db, ServiceRef("none.example", "a")) is None


SPLIT = (
    "http: [{route: [{destination: {host: x}, weight: 1}, {destination: {host: y}, weight: 1}]}], tcp: [{route: [{destination: {host: x}}]}], "
    "tls: [{match: [{sniHosts: [s.example]}], route: [{destination: {host: z}}]}]"
)


@pytest.mark.parametrize(
    ("gateways", "sources"),
    [
        ("", ["s.example", "t.example"]),
        ("gateways: [mesh], ", ["s.example", "t.example"]),
        ("gateways: [g, b/g], ", ["gateway a/g", "gateway b/g"]),
        ("gateways: [mesh, g], ", ["gateway a/g", "s.example", "t.example"]),
    ],
)
def test_links_of_a_route(gateways: str, sources: list[str]) -> None:
    db = world(make("VirtualService", "r", f"{{hosts: [s.example, t.example], {gateways}{SPLIT}}}")).mesh
    targets = [f"{name}.a.svc.cluster.local" for name in "xyz"]
    assert list(links_of_route(db, ObjectKey("a", "r"))) == [
        (source, target, "a/r") for source in sources for target in targets
    ]
    assert links_of_route(db, ObjectKey("a", "gone")) == ()
