"""The graph of the dashboard: namespaces, services, gateways and links."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.kinds.istio import AUTHORIZATION_POLICY, VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.debug.dashboard.mesh import (
    AdmittedCaller,
    Link,
    MeshContext,
    MeshGraph,
    ServiceFacts,
    UnhealthyProxy,
    gateways_of_proxy,
    links_of_route,
    problem_hosts,
    service_facts,
    show_graph,
    slices_of_service,
)
from pilot.mesh.model.service import Registry, ServiceRef
from pilot.mesh.registry.services import service_refs
from testing.mesh.debug_server import sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy

WEB, API, SHOP = "web.a.svc.cluster.local", "api.b.svc.cluster.local", "shop.example"
ALLOW = ObjectKey("a", "p")


def facts_of(namespace: str, host: str, ready: int = 1, total: int = 1, **fields: Any) -> ServiceFacts:
    whole: Any = {
        "access": "open",
        "callers": (),
        "policies": (),
        "accounts": (),
        "mtls": "",
        "needs_identity": False,
        "ports": (80,),
    } | fields
    return ServiceFacts(namespace=namespace, host=host, registry=Registry.KUBERNETES, ready=ready, total=total, **whole)


def route_ref(name: str) -> ObjectRef:
    return ObjectRef(VIRTUAL_SERVICE.id, "a", name)


def problem(kind: str, namespace: str, name: str, severity: Severity = Severity.ERROR) -> Problem:
    return Problem(
        code="c", object=ObjectRef(GroupKind(NETWORKING, kind), namespace, name), message="m", severity=severity
    )


NOTHING = MeshContext([], [], {})
GRAPH = MeshGraph(
    [
        facts_of("b", API, 0, 0, accounts=("x",)),
        facts_of(
            "a",
            WEB,
            1,
            2,
            access="restricted",
            callers=(AdmittedCaller("b", "x", ALLOW), AdmittedCaller("gone", "", ALLOW)),
        ),
        facts_of("a", SHOP, 0, -1),
    ],
    (ObjectKey("a", "g"), ObjectKey("b", "g")),
    [
        Link("gateway a/g", WEB, route_ref("r")),
        Link("gateway a/g", WEB, route_ref("s")),
        Link(SHOP, WEB, route_ref("r")),
        Link(WEB, WEB, route_ref("r")),
        Link("unknown.example", WEB, route_ref("r")),
        Link("gateway a/g", "unknown.example", route_ref("r")),
    ],
)


def links(view: Plain) -> list[tuple[str, str, list[str], int]]:
    return [(link["from"], link["to"], link["kinds"], link["count"]) for link in view["links"]]


def test_services_of_the_opened_namespace_are_shown() -> None:
    folded = show_graph(GRAPH, NOTHING, "")
    assert [(n["name"], n["count"], n["unready"], n["empty"], n["services"]) for n in folded["namespaces"]] == [
        ("a", 2, 0, 0, []),
        ("b", 1, 0, 1, []),
    ]
    opened = show_graph(GRAPH, NOTHING, "a")
    assert [[s["host"] for s in n["services"]] for n in opened["namespaces"]] == [[SHOP, WEB], []]
    assert folded["services"] == opened["services"] == 3


def test_links_between_visible_places_are_combined() -> None:
    assert links(show_graph(GRAPH, NOTHING, "")) == [
        ("gateway a/g", "namespace a", ["route"], 2),
        ("namespace b", "namespace a", ["policy"], 1),
    ]
    assert links(show_graph(GRAPH, NOTHING, "a")) == [
        ("gateway a/g", f"service a/{WEB}", ["route"], 2),
        ("namespace b", f"service a/{WEB}", ["policy"], 1),
        (f"service a/{SHOP}", f"service a/{WEB}", ["route"], 1),
    ]


def test_caller_in_the_opened_namespace_is_the_service_with_its_account() -> None:
    view = show_graph(GRAPH, NOTHING, "b")
    (link,) = [link for link in view["links"] if link["kinds"] == ["policy"]]
    assert (link["from"], link["to"]) == (f"service b/{API}", "namespace a")
    assert link["by"] == [
        {"group": AUTHORIZATION_POLICY.id.group, "kind": "AuthorizationPolicy", "namespace": "a", "name": "p"}
    ]


def test_errors_warnings_and_unhealthy_proxies_are_counted_apart() -> None:
    problems = [
        (problem("VirtualService", "a", "any"), (WEB,)),
        (problem("DestinationRule", "a", "web", Severity.WARNING), ()),
        (problem("Gateway", "a", "g"), ()),
        (problem("Sidecar", "a", "web"), ()),
    ]
    proxies = [
        UnhealthyProxy("refused", "a", (ServiceRef(WEB, "a"),)),
        UnhealthyProxy("stale", "b", (), (ObjectKey("b", "g"),)),
    ]
    view = show_graph(GRAPH, MeshContext(problems, proxies, {"a": 7}), "a")
    web = next(s for s in view["namespaces"][0]["services"] if s["host"] == WEB)
    levels = ("errors", "warnings", "refused", "stale")
    assert [web[level] for level in levels] == [1, 1, 1, 0]
    assert [view["namespaces"][0][level] for level in levels] == [3, 1, 1, 0]
    assert [[gateway[level] for level in levels] for gateway in view["gateways"]] == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert [n["proxies"] for n in view["namespaces"]] == [7, 0]


def test_service_with_injected_faults_is_not_healthy() -> None:
    abort = "{abort: {percentage: {value: 30}, httpStatus: 500}}"
    spec = f"{{hosts: [web], http: [{{fault: {abort}, route: [{{destination: {{host: web}}}}]}}]}}"
    mesh = world(*SERVICE_OBJECTS, make("VirtualService", "r", spec, "a"))
    graph = GRAPH._replace(links=list(links_of_route(mesh.mesh, ObjectKey("a", "r"))))
    namespace = show_graph(graph, NOTHING, "a")["namespaces"][0]
    assert (namespace["faults"], namespace["faulty_host"]) == (1, WEB)
    assert {s["host"]: s["faults"] for s in namespace["services"]} == {WEB: 1, SHOP: 0}


def test_gateway_of_a_route_that_fails_is_red_and_innocent_destinations_are_not() -> None:
    spec = """{hosts: [shop.example.com], gateways: [g], http: [
      {match: [{uri: {prefix: /a}}], route: [{destination: {host: web.a.svc.cluster.local}}]},
      {route: [{destination: {host: wbe.a.svc.cluster.local}}]}]}"""
    servers = "[{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]"
    gateway = make("Gateway", "g", f"{{selector: {{app: gateway}}, servers: {servers}}}", "a")
    mesh = world(*SERVICE_OBJECTS, gateway, make("VirtualService", "r", spec, "a"))
    (missing,) = [p for p in problems_of(mesh) if p.code == "destination-not-found"]
    assert missing.severity is Severity.ERROR
    hosts = problem_hosts(sources(mesh.mesh), missing)
    assert hosts[0] == "gateway a/g"
    assert WEB not in hosts
    view = show_graph(GRAPH, MeshContext([(missing, hosts)], [], {}), "a")
    assert [gateway["errors"] for gateway in view["gateways"]] == [1, 0]


SERVICE_OBJECTS = (
    service("web", "[{name: http, port: 80, targetPort: 8080}, {name: more, port: 81}]"),
    pod("web-0", "10.0.0.1", labels="{app: web}"),
    endpoint_slice("web", at("10.0.0.1", "web-0"), at("10.0.0.2", conditions="{ready: false}")),
)


def policy(name: str, rules: str, action: str = "ALLOW", **annotations: str) -> Plain:
    row = make("AuthorizationPolicy", name, f"{{action: {action}, rules: [{rules}]}}", "a")
    row["metadata"]["annotations"] = annotations
    return row


def facts_with(*objects: Plain) -> ServiceFacts:
    db = world(*SERVICE_OBJECTS, *objects).mesh
    facts = service_facts(db, ServiceRef(WEB, "a"))
    assert facts is not None
    return facts


@pytest.mark.parametrize(
    ("policies", "access", "callers"),
    [
        ((), "open", []),
        ((policy("p", "{to: [{operation: {methods: [GET]}}]}", "DENY"),), "open", []),
        ((policy("p", "{}", "DENY"),), "closed", []),
        ((policy("p", ""),), "closed", []),
        ((policy("p", "", **{"istio.io/dry-run": "true"}),), "open", []),
        ((policy("p", "{}"),), "open", []),
        ((policy("p", "{from: [{source: {namespaces: [b]}}]}"),), "restricted", [("b", "")]),
        ((policy("p", "{from: [{source: {principals: [t/ns/b/sa/c, '*']}}]}"),), "restricted", [("b", "c")]),
        ((policy("p", "{from: [{source: {principals: ['t/ns/b/sa/*']}}]}"),), "restricted", [("b", "")]),
        ((policy("p", "{from: [{source: {serviceAccounts: [x/y, z]}}]}"),), "restricted", [("x", "y"), ("a", "z")]),
        ((policy("p", "{to: [{operation: {methods: [GET]}}]}"),), "restricted", []),
    ],
)
def test_access_and_callers_come_from_policies_in_force(
    policies: tuple[Plain, ...], access: str, callers: list[tuple[str, str]]
) -> None:
    facts = facts_with(*policies)
    assert (facts.access, [(c.namespace, c.account) for c in facts.callers]) == (access, callers)


def test_service_facts() -> None:
    strict = make("PeerAuthentication", "default", "{mtls: {mode: STRICT}}", "a")
    facts = facts_with(strict)
    assert (facts.ready, facts.total, facts.ports, facts.mtls, facts.accounts) == (
        1,
        2,
        (80, 81),
        "STRICT",
        ("default",),
    )
    none = make("ServiceEntry", "n", "{hosts: [n.example], resolution: NONE, ports: [{number: 80, name: http}]}")
    db = world(none).mesh
    (ref,) = service_refs(db)
    facts_of_entry = service_facts(db, ref)
    assert facts_of_entry is not None
    assert (facts_of_entry.total, facts_of_entry.is_unready) == (-1, False)
    assert service_facts(db, ServiceRef("none.example", "a")) is None


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("{from: [{source: {namespaces: [b]}}]}", True), ("{to: [{operation: {methods: [GET]}}]}", False)],
)
def test_service_needs_an_identity_if_its_policies_reject_callers_without_one(rule: str, expected: bool) -> None:
    assert facts_with(policy("p", rule)).needs_identity is expected


def test_slices_of_a_service_are_named() -> None:
    db = world(*SERVICE_OBJECTS).mesh
    assert slices_of_service(db, ServiceRef(WEB, "a")) == ["a/web-0"]
    assert slices_of_service(db, ServiceRef("none.example", "a")) == []


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
        Link(source, target, route_ref("r")) for source in sources for target in targets
    ]
    assert links_of_route(db, ObjectKey("a", "gone")) == ()


def test_gateways_of_a_router() -> None:
    servers = "[{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]"
    mesh_world = world(
        make("Gateway", "g", f"{{selector: {{app: edge}}, servers: {servers}}}", "a"),
        make("Gateway", "other", f"{{selector: {{app: other}}, servers: {servers}}}", "a"),
    )
    router = mesh_world.connect(proxy("router", "edge-0", "a", "10.0.0.9", labels={"app": "edge"}))
    sidecar = mesh_world.connect(proxy("sidecar", "web-0", "a", "10.0.0.1", labels={"app": "edge"}))
    mesh = mesh_world.mesh
    assert gateways_of_proxy(mesh, router) == (ObjectKey("a", "g"),)
    assert gateways_of_proxy(mesh, sidecar) == gateways_of_proxy(mesh, "gone") == ()
