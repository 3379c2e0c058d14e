"""Answers of the dashboard about one service."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.cli.ctl.commands.service_parts import service_parts
from pilot.cli.ctl.output import TextTable
from pilot.config.group_kind import NETWORKING, SECURITY, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.mesh import MeshContext, UnhealthyProxy
from pilot.debug.dashboard.service_answer import describe_service
from pilot.debug.page import Refused
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from pilot.mesh.model.service import ServiceRef
from testing.mesh.debug_server import sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from tests.unit.debug.dashboard.test_fleet import connection, rejected

HOST = "web.a.svc.cluster.local"
WEB = service("web", "[{name: http, port: 80, targetPort: 8080}]")
NAMED = service("web", "[{name: http, port: 80, targetPort: http}]")
POD = pod("web-0", "10.0.0.1", labels="{app: web, version: v1}")
READY, UNREADY = at("10.0.0.1", "web-0"), at("10.0.0.1", "web-0", conditions="{ready: false}")
SLICE = endpoint_slice("web", READY)
IDLE = service("idle", "[{name: http, port: 80}]")
SUBSETS = make(
    "DestinationRule",
    "web",
    "{host: web, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}",
)


async def describe(*objects: Plain, context: MeshContext | None = None, proxies: Any = ()) -> Plain:
    mesh_world = world(*objects)
    pages = sources(mesh_world.mesh, *proxies)
    graph = await CachedGraph(mesh_world.mesh).get()
    return await describe_service(pages, graph, context or MeshContext([], [], {}), ServiceRef(HOST, "a"))


def route(to: str, more: str = "") -> Plain:
    return make("VirtualService", "web", f"{{hosts: [web], http: [{{route: [{to}]{more}}}]}}")


def reasons(answer: Plain) -> list[tuple[str, str]]:
    return [(reason["severity"], reason["text"]) for reason in answer["reasons"]]


async def test_healthy_service() -> None:
    client = connection("web-0.a")
    answer = await describe(WEB, POD, SLICE, proxies=(client,))
    assert (answer["reasons"], answer["access"], answer["routes"], answer["rules"]) == ([], "open", [], [])
    assert answer["endpoints"] == [
        {
            "address": "10.0.0.1",
            "port": 8080,
            "state": "ready",
            "ready": True,
            "condition": "",
            "workload": answer["endpoints"][0]["workload"],
            "version": "v1",
            "locality": "",
            "proxy": "web-0.a-1",
            "inMesh": False,
        }
    ]
    assert answer["source"] == {"group": "", "kind": "Service", "namespace": "a", "name": "web"}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (
            (WEB,),
            ("warning", "It has no endpoints, so requests get 503: no workload matches its selector app=web."),
        ),
        (
            (WEB, POD),
            ("warning", "It has no endpoints, so requests get 503: workloads match its selector, but none is running."),
        ),
        (
            (NAMED, POD),
            (
                "warning",
                "It has no endpoints, so requests get 503: no container of the Pods that it selects has a port named "
                "http.",
            ),
        ),
        ((WEB, POD, endpoint_slice("web", UNREADY)), ("error", "Its only endpoint is not ready, so requests get 503.")),
        (
            (WEB, POD, endpoint_slice("web", READY, at("10.0.0.2", conditions="{ready: false}"))),
            ("warning", "1 of its 2 endpoints are not ready."),
        ),
        (
            (WEB, POD, SLICE, route("{destination: {host: gone.example}}")),
            ("error", "spec.http[0] sends its requests to gone.example: the host does not exist, so they get 503."),
        ),
        (
            (WEB, POD, SLICE, route("{destination: {host: web, port: {number: 9999}}}")),
            ("error", f"spec.http[0] sends its requests to {HOST}: it has no port 9999, so they get 503."),
        ),
        (
            (WEB, POD, SLICE, IDLE, route("{destination: {host: idle}}")),
            (
                "error",
                "spec.http[0] sends its requests to idle.a.svc.cluster.local: it has no endpoints, so they get 503.",
            ),
        ),
        (
            (
                WEB,
                POD,
                SLICE,
                route("{destination: {host: web}, weight: 80}, {destination: {host: web, subset: v3}, weight: 20}"),
            ),
            (
                "error",
                f"spec.http[0] sends 20 % of its requests to {HOST}, subset v3: no DestinationRule has the subset v3, so "
                "they get 503.",
            ),
        ),
        (
            (WEB, POD, SLICE, SUBSETS, route("{destination: {host: web, subset: v2}}")),
            ("error", f"spec.http[0] sends its requests to {HOST}, subset v2: it has no endpoints, so they get 503."),
        ),
        (
            (
                WEB,
                POD,
                SLICE,
                route("{destination: {host: web}}", ", fault: {abort: {httpStatus: 503, percentage: {value: 50}}}"),
            ),
            ("warning", "spec.http[0] aborts 50 % of the requests with 503."),
        ),
        (
            (
                WEB,
                POD,
                SLICE,
                make("PeerAuthentication", "default", "{mtls: {mode: STRICT}}"),
                make("DestinationRule", "web", "{host: web, trafficPolicy: {tls: {mode: DISABLE}}}"),
            ),
            (
                "error",
                "Clients do not use the mesh's mutual TLS (DestinationRule a/web, tls mode DISABLE), and the service requires it"
                " (PeerAuthentication a/default).",
            ),
        ),
        (
            (WEB, POD, SLICE, make("AuthorizationPolicy", "none", "{}")),
            ("error", "AuthorizationPolicy a/none admits nobody: callers get status 403."),
        ),
    ],
)
async def test_reasons_for_failing_requests(objects: tuple[Plain, ...], expected: tuple[str, str]) -> None:
    assert reasons(await describe(*objects)) == [expected]


async def test_unhealthy_proxies_and_problems_of_the_service_are_reported() -> None:
    ref = ObjectRef(GroupKind(NETWORKING, "Sidecar"), "b", "other")
    problems = [
        Problem(code="c", object=ref, message="m"),
        Problem(code="d", object=ref._replace(namespace="a", name="web"), message="m"),
    ]
    proxies = [UnhealthyProxy(state, "a", (ServiceRef(HOST, "a"),)) for state in ("refused", "stale", "stale")]
    context = MeshContext([(problems[0], ()), (problems[1], ())], proxies, {})
    answer = await describe(WEB, POD, SLICE, context=context)
    assert reasons(answer) == [
        ("error", "1 of its proxies rejects its configuration."),
        ("warning", "2 of its proxies are not responding."),
    ]
    assert [problem["code"] for problem in answer["problems"]] == ["d"]


async def test_rejections_of_the_service_s_own_proxies_are_listed() -> None:
    client = connection("web-0.a", rds=rejected())
    answer = await describe(WEB, POD, SLICE, proxies=(client,))
    assert reasons(answer) == [("error", "web-0.a rejects its routes since 2023-11-14 22:13:20 UTC: no")]


ENTRY = make(
    "ServiceEntry",
    "reviews",
    "{hosts: [reviews.a.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("x.example", "does not exist in namespace a; the host has routes of VirtualService a/edge: see pilotctl"),
        ("webb.a.svc.cluster.local", "does not exist in namespace a; did you mean svc/web.a?"),
        ("reviews", "does not exist in namespace a; did you mean svc/a/reviews.a.example.com?"),
        ("reviews.a.exmple.com", "does not exist in namespace a; did you mean svc/a/reviews.a.example.com?"),
        ("no-such-thing", "service no-such-thing does not exist in namespace a\n"),
    ],
)
async def test_unknown_services_lead_to_routes_and_similar_names(host: str, expected: str) -> None:
    edge = make("VirtualService", "edge", "{hosts: [x.example], gateways: [g], http: [{redirect: {uri: /}}]}")
    mesh_world = world(WEB, ENTRY, edge)
    graph = await CachedGraph(mesh_world.mesh).get()
    with pytest.raises(Refused) as refused:
        await describe_service(sources(mesh_world.mesh), graph, MeshContext([], [], {}), ServiceRef(host, "a"))
    assert expected in refused.value.text


async def test_longer_host_in_another_namespace_is_suggested() -> None:
    mesh_world = world(WEB, ENTRY)
    graph, ref = await CachedGraph(mesh_world.mesh).get(), ServiceRef("reviews", "default")
    with pytest.raises(Refused) as refused:
        await describe_service(sources(mesh_world.mesh), graph, MeshContext([], [], {}), ref)
    assert refused.value.text == (
        "service reviews does not exist in namespace default; did you mean svc/a/reviews.a.example.com?\n"
    )


@pytest.mark.parametrize(
    ("host", "expected"), [("web", "svc/web.a"), ("reviews.a.example.com", "svc/a/reviews.a.example.com")]
)
async def test_service_of_another_namespace_is_named(host: str, expected: str) -> None:
    mesh_world = world(WEB, ENTRY)
    graph, ref = await CachedGraph(mesh_world.mesh).get(), ServiceRef(host, "b")
    with pytest.raises(Refused) as refused:
        await describe_service(sources(mesh_world.mesh), graph, MeshContext([], [], {}), ref)
    assert refused.value.text == f"service {host} does not exist in namespace b, but in a: use {expected}\n"


async def test_rejections_of_what_is_built_from_the_objects_of_the_service_are_reported() -> None:
    routes = make("VirtualService", "split", "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}")
    mesh_world = world(WEB, POD, SLICE, routes, SUBSETS)
    ref, other = (ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", name) for name in ("split", "other"))
    rule = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web")
    nacks = mesh_world.mesh.nacks
    rejections = [("client-0.b", (ref, rule)), ("client-1.b", (other,))]
    mesh_world.mesh.commit(
        [
            (nacks, NackKey(proxy, BY_SHORT_NAME["rds"]), Nack(proxy, "RDS", "no such cluster", refs))
            for proxy, refs in rejections
        ]
    )
    context = MeshContext([(Problem(code="refused", object=ref, message="m"), (HOST,))], [], {})
    graph = await CachedGraph(mesh_world.mesh).get()
    answer = await describe_service(sources(mesh_world.mesh), graph, context, ServiceRef(HOST, "a"))
    assert answer["reasons"] == [
        {
            "severity": "error",
            "text": "client-0.b rejects its routes: no such cluster",
            "object": {"group": NETWORKING, "kind": "VirtualService", "namespace": "a", "name": "split"},
            "own": False,
            "changed": 0.0,
        }
    ]
    assert answer["problems"] == []


async def test_problems_of_policies_and_rules_with_other_names_are_reported() -> None:
    rule = make("DestinationRule", "limits", "{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}")
    policy = make("AuthorizationPolicy", "callers", "{rules: [{}]}")
    peers = make("PeerAuthentication", "mtls", "{mtls: {mode: STRICT}}")
    refs = [
        ObjectRef(GroupKind(group, plain["kind"]), "a", plain["metadata"]["name"])
        for group, plain in (
            (NETWORKING, rule),
            (SECURITY, policy),
            (SECURITY, peers),
            (SECURITY, make("AuthorizationPolicy", "none", "{}")),
        )
    ]
    context = MeshContext([(Problem(code=ref.name, object=ref, message="m"), ()) for ref in refs], [], {})
    answer = await describe(WEB, POD, SLICE, rule, policy, peers, context=context)
    assert [problem["code"] for problem in answer["problems"]] == ["limits", "callers", "mtls"]


async def test_routes_list_destinations_with_their_endpoints() -> None:
    edge = make(
        "VirtualService",
        "edge",
        "{hosts: [x.example], gateways: [g], http: [{route: [{destination: {host: web}}], match: [{uri: {prefix: /x}, method: {exact: GET}}], timeout: 5s}]}",
    )
    own = route("{destination: {host: web, subset: v1}}")
    answer = await describe(WEB, POD, SLICE, SUBSETS, edge, own)
    shown = {one["object"]["name"]: one for one in answer["routes"]}
    assert (shown["edge"]["applies"], shown["edge"]["gateways"]) == (False, ("a/g",))
    (rule,) = shown["edge"]["rules"]
    assert (rule["match"], rule["action"], rule["to"][0]["ready"]) == (["GET and path /x*"], "timeout 5s", 1)
    (to,) = shown["web"]["rules"][0]["to"]
    assert (to["subset"], to["ready"], to["total"], to["fault"]) == ("v1", 1, 1, "")
    assert [(s["name"], s["ready"], s["total"]) for s in answer["rules"][0]["subsets"]] == [("v1", 1, 1), ("v2", 0, 0)]


async def test_policies_are_shown_as_text() -> None:
    rule = "{from: [{source: {principals: [t/ns/b/sa/c], notNamespaces: [d]}}], to: [{operation: {methods: [GET], paths: [/x]}}], when: [{key: 'request.headers[k]', values: [v]}]}"
    answer = await describe(WEB, POD, SLICE, make("AuthorizationPolicy", "p", f"{{rules: [{rule}]}}"))
    assert answer["policies"][0]["rules"] == [
        {
            "from": ["principal t/ns/b/sa/c and not namespace d"],
            "to": ["method GET and path /x"],
            "when": ["request.headers[k] = v"],
        }
    ]
    (caller,) = answer["callers"]
    (requests,) = caller["requests"]
    assert (caller["namespace"], caller["account"], requests["by"]["name"]) == ("b", "c", "p")
    assert requests["text"] == "GET /x if request.headers[k] is v"


async def test_policies_that_select_the_workloads_of_addresses_that_belong_to_no_pod_are_listed() -> None:
    selector = "selector: {matchLabels: {app: web}}"
    policy = make("AuthorizationPolicy", "none", f"{{{selector}}}")
    peers = make("PeerAuthentication", "strict", f"{{{selector}, mtls: {{mode: STRICT}}}}")
    for endpoints in ([], [endpoint_slice("web", at("10.9.9.9"))]):
        answer = await describe(WEB, policy, peers, *endpoints)
        assert [row["object"]["name"] for row in answer["policies"]] == ["none"]
        assert [row["name"] for row in answer["mtlsBy"]] == ["strict"]
        assert (answer["access"], answer["mtls"]) == ("closed", "STRICT" if endpoints else "")


async def test_service_as_text_lists_faults_and_rules_of_policies() -> None:
    fault = "fault: {abort: {percentage: {value: 30}, httpStatus: 500}}, timeout: 5s"
    callers = "{rules: [{from: [{source: {namespaces: [b]}}], to: [{operation: {methods: [GET]}}]}]}"
    answer = await describe(
        WEB,
        POD,
        SLICE,
        route("{destination: {host: web}}", f", {fault}"),
        make("AuthorizationPolicy", "callers", callers),
    )
    parts = list(service_parts(answer))
    assert " ".join(str(parts[3]).split()) == (
        "Plain-text requests get 403: mutual TLS is PERMISSIVE by default, as no PeerAuthentication applies, but "
        "AuthorizationPolicy a/callers requires an identity."
    )
    tables = [part for part in parts if isinstance(part, TextTable)]
    cells = [cell for table in tables for row in table.rows for cell in row]
    assert str(parts[2]).startswith(
        "  Warning in VirtualService a/web: spec.http[0] aborts 30 % of the requests with 500"
    )
    assert any("timeout 5s" in str(cell) for cell in cells)
    assert ["ALLOW", "AuthorizationPolicy a/callers", "namespace b", "method GET", "*"] in tables[2].rows
    assert tables[0].rows == [("b/*", "GET", "-")]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('{to: [{operation: {paths: ["/v2/*"]}}]}', "spec.rules[0] denies requests to path /v2/* with 403."),
        (
            "{from: [{source: {namespaces: [b]}}], to: [{operation: {methods: [PUT]}}]}",
            "spec.rules[0] denies requests from namespace b to method PUT with 403.",
        ),
    ],
)
async def test_requests_that_a_policy_denies_are_a_reason(rule: str, expected: str) -> None:
    policy = make("AuthorizationPolicy", "no", f"{{action: DENY, rules: [{rule}]}}")
    mesh_world = world(WEB, POD, SLICE, policy)
    graph = await CachedGraph(mesh_world.mesh).get()
    answer = await describe_service(sources(mesh_world.mesh), graph, MeshContext([], [], {}), ServiceRef(HOST, "a"))
    assert [(one["severity"], one["text"]) for one in answer["reasons"]] == [("info", expected)]


async def test_http_routes_to_a_tcp_port_inject_no_faults_and_fail_no_requests() -> None:
    web = service("web", "[{name: http, port: 80, targetPort: 8080, appProtocol: tcp}]")
    fault = ", fault: {abort: {httpStatus: 503, percentage: {value: 50}}}"
    answer = await describe(web, POD, SLICE, route("{destination: {host: gone.example}}", fault))
    assert reasons(answer) == []
    assert [rule["action"] for rule in answer["routes"][0]["rules"]] == ["none: the service has no HTTP port"]
    assert reasons(await describe(web)) == [
        ("warning", "It has no endpoints, so connections are closed: no workload matches its selector app=web.")
    ]
    assert reasons(await describe(web, POD, endpoint_slice("web", UNREADY))) == [
        ("error", "Its only endpoint is not ready, so connections are closed.")
    ]
    at_gateway = route("{destination: {host: web}}", fault)
    at_gateway["spec"]["gateways"] = ["mesh", "edge"]
    assert ("warning", "spec.http[0] aborts 50 % of the requests with 503.") in reasons(
        await describe(web, POD, SLICE, at_gateway)
    )
