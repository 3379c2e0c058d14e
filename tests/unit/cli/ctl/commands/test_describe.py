"""Summary of a workload: its services, gateways, routes and policies."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.commands.service_parts import service_parts
from pilot.cli.ctl.output import TextTable
from pilot.cli.pilotctl import pilotctl
from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.page import Refused
from pilot.debug.pages.describe import describe
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_server import FakeConnection, FakeWatch, sources
from testing.mesh.listeners import WEB_POD, service
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import proxy

WEB = service("web", "[{name: http, port: 80, targetPort: 8080}]")
RULE = make(
    "DestinationRule",
    "web",
    "{host: web, subsets: [{name: all, labels: {app: web}}, {name: none, labels: {app: other}}]}",
)
ROUTE = make("VirtualService", "web", "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}")
STRICT = make("PeerAuthentication", "default", "{mtls: {mode: STRICT}}")
GATEWAY = make(
    "Gateway",
    "front",
    "{selector: {istio: gate}, servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}",
)
GATEWAY_ROUTE = make(
    "VirtualService",
    "shop",
    "{hosts: [shop.example], gateways: [front], http: [{route: [{destination: {host: web}}]}]}",
)


def summarize(
    *objects: Plain, kind: str = "sidecar", name: str = "web-0", ip: str = "10.1.0.1", **metadata: Any
) -> dict[str, Any]:
    mesh_world = world(*objects)
    node = proxy(kind, name, "a", ip, **metadata)
    pages = sources(mesh_world.mesh, FakeConnection(f"{name}.a-1", mesh_world.connect(node), node))
    summary: dict[str, Any] = asyncio.run(describe(pages, {"proxyID": name}))
    return summary


def run_describe(summary: dict[str, Any]) -> str:
    with mock.patch.object(PageClient, "get", return_value=summary):
        result = CliRunner().invoke(pilotctl, ["describe", "web"])
    assert result.exit_code == 0, result.output
    return result.output


def test_sidecar_lists_services_routes_rules_and_mtls_modes() -> None:
    summary = summarize(WEB, WEB_POD, RULE, ROUTE, STRICT)
    assert [(s["host"], s["port"], s["targetPort"], s["mutualTls"]) for s in summary["services"]] == [
        ("web.a.svc.cluster.local", 80, 8080, "STRICT")
    ]
    (web,) = summary["services"]
    assert (web["virtualServices"], web["destinationRules"], web["subsets"]) == (["a/web"], ["a/web"], ["all"])
    assert summary["policies"] == {"PeerAuthentication": ["a/default"]}
    text = run_describe(summary).splitlines()
    assert text[3].split() == ["web.a.svc.cluster.local", "80", "HTTP", "8080", "STRICT", "a/web", "a/web", "all"]
    assert text[-1].split() == ["PeerAuthentication", "a/default"]


def test_router_lists_its_gateways() -> None:
    summary = summarize(
        GATEWAY, GATEWAY_ROUTE, WEB, kind="router", name="gate", ip="10.9.0.9", labels={"istio": "gate"}
    )
    assert summary["gateways"] == [{"gateway": "a/front", "virtualServices": ["a/shop"]}]
    assert run_describe(summary).splitlines()[3].split() == ["a/front", "a/shop"]


def test_unselected_workload_is_reported() -> None:
    assert run_describe(summarize()).splitlines()[2:] == ["No service selects it.", "", "No policy applies to it."]
    labelled = summarize(kind="router", name="gate", ip="10.9.0.9", labels={"istio": "gate"})
    assert "No Gateway selects it: its labels are istio=gate" in run_describe(labelled)
    text = " ".join(run_describe(summarize(kind="router")).split())
    assert "No Gateway selects it: it has no labels, which are those of its Pod, or node.metadata.LABELS in its" in text


def test_proxy_that_is_not_responding_or_rejects_resources_is_described_as_such_in_the_first_lines() -> None:
    mesh_world = world(WEB, WEB_POD)
    node = proxy("sidecar", "web-0", "a", "10.1.0.1")
    watches = {BY_SHORT_NAME["cds"]: FakeWatch(nonce_acked=""), BY_SHORT_NAME["rds"]: FakeWatch(last_error="bad")}
    connection = FakeConnection("web-0.a-1", mesh_world.connect(node), node, subscriptions=watches, has_started=False)
    watches[BY_SHORT_NAME["rds"]].rejected_since = 1_700_000_001.0
    pages = sources(mesh_world.mesh, connection)
    lines = run_describe(asyncio.run(describe(pages, {"proxyID": "web-0"}))).splitlines()
    assert lines[1:3] == [
        "It rejects its routes since 2023-11-14 22:13:21 UTC: bad.",
        "It is not responding: it has not acknowledged its first configuration (clusters) since 2023-11-14 22:13:20 UTC.",
    ]


def test_disconnected_proxy_is_rejected() -> None:
    with pytest.raises(Refused):
        asyncio.run(describe(sources(world().mesh), {"proxyID": "web-0"}))


@pytest.mark.parametrize(
    ("words", "page", "query"),
    [
        (["po", "web-0", "-n", "shop"], "describe", {"proxyID": "web-0", "namespace": "shop"}),
        (["svc/web.shop"], "dashboard/service", {"host": "web", "namespace": "shop"}),
        (["svc", "web", "-n", "shop"], "dashboard/service", {"host": "web", "namespace": "shop"}),
        (["svc/shop/web"], "dashboard/service", {"host": "web", "namespace": "shop"}),
        (["svc/shop/reviews.shop"], "dashboard/service", {"host": "reviews.shop", "namespace": "shop"}),
        (["service/web"], "dashboard/service", {"host": "web", "namespace": "default"}),
        (["svc/web.shop.svc.x.y"], "dashboard/service", {"host": "web.shop.svc.x.y", "namespace": "shop"}),
        (["svc/api.example", "-n", "shop"], "dashboard/service", {"host": "api.example", "namespace": "shop"}),
        (["pod", "web-0.shop"], "describe", {"proxyID": "web-0.shop"}),
        (["web-0.shop"], "describe", {"proxyID": "web-0.shop"}),
    ],
)
def test_services_and_pods_are_found_by_each_form_of_their_names(
    words: list[str], page: str, query: dict[str, str]
) -> None:
    with mock.patch.object(PageClient, "get", side_effect=Refused(404, "")) as get:
        CliRunner().invoke(pilotctl, ["describe", *words])
    get.assert_called_once_with(page, **query)


def test_refusal_without_a_path_is_a_reason() -> None:
    refusal = {
        "severity": "error",
        "kind": "VirtualService",
        "namespace": "shop",
        "name": "cart",
        "message": "rejected RDS",
    }
    lists = dict.fromkeys(
        ("mtlsBy", "identityBy", "reasons", "hiddenBy", "callers", "routes", "rules", "policies", "endpoints"), ()
    )
    head = {"host": "cart", "namespace": "shop", "ready": 1, "total": 1, "mtls": "STRICT", "connected": 0}
    fault = {
        "severity": "warning",
        "object": {**refusal, "name": "mail"},
        "changed": 1764357863.9,
        "text": "aborts 30 %",
    }
    _, *lines = map(str, service_parts({**lists, **head, "reasons": [fault], "problems": [refusal]}))
    assert lines == [
        "Why requests may fail:",
        "  Error in VirtualService shop/cart: rejected RDS",
        "  Warning in VirtualService shop/mail (changed 2025-11-28 19:24:23 UTC): aborts 30 %",
        "Plain text is rejected: mutual TLS is STRICT by default, as no PeerAuthentication applies.",
    ]


@pytest.mark.parametrize(
    ("namespaces", "expected"),
    [
        (("shop",), "Sidecar shop/s hides it from 2 proxies of the namespace shop."),
        (("a",), "Sidecar a/s hides it from 2 proxies of the namespace a."),
        (("a", "b"), "Sidecar a/s, Sidecar b/s hide it from 4 proxies of 2 other namespaces."),
        (
            ("a", "b", "c", "d", "e"),
            "Sidecar a/s, Sidecar b/s, Sidecar c/s and 2 more hide it from 10 proxies of 5 other namespaces.",
        ),
    ],
)
def test_sidecars_of_other_namespaces_that_hide_a_service_have_one_line(
    namespaces: tuple[str, ...], expected: str
) -> None:
    lists = dict.fromkeys(("mtlsBy", "identityBy", "reasons", "callers", "rules", "policies", "endpoints"), ())
    head = {"host": "cart", "namespace": "shop", "ready": 1, "total": 1, "mtls": "", "connected": 1, "problems": ()}
    hiding = [
        {"sidecar": {"kind": "Sidecar", "namespace": one, "name": "s"}, "namespace": one, "proxies": 2, "changed": 0.0}
        for one in namespaces
    ]
    route = {"object": hiding[0]["sidecar"], "rules": [{"path": "p", "match": [], "to": [], "action": ""}]}
    lines = list(map(str, service_parts({**lists, **head, "hiddenBy": hiding, "routes": [route]})))
    assert lines[1 if namespaces == ("shop",) else -1] == expected
    assert sum("hide" in line for line in lines) == 1


def test_problems_of_the_gateway_s_routes_and_hidden_services_are_listed() -> None:
    mesh_world = world(GATEWAY, GATEWAY_ROUTE, WEB)
    node = proxy("router", "gate", "a", "10.9.0.9", {"istio": "gate"})
    ref = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "shop")
    problems = [
        Problem(code="destination-not-found", object=ref, path="spec.http[0]", message="service x not found"),
        Problem(code="other", object=ref._replace(name="other"), message="m"),
    ]
    connection = FakeConnection("gate.a-1", mesh_world.connect(node), node)
    pages = sources(mesh_world.mesh, connection, problems=problems)
    lines = run_describe(asyncio.run(describe(pages, {"proxyID": "gate"}))).splitlines()
    assert lines[1:3] == [
        "Why requests may fail:",
        "  Error in VirtualService a/shop: spec.http[0]: service x not found",
    ]
    own = make("Sidecar", "own", "{egress: [{hosts: ['./*']}]}")
    other = service("api", "[{name: http, port: 80}]", namespace="b")
    assert "Sidecar a/own hides 1 of 2 services from it." in run_describe(summarize(WEB, WEB_POD, other, own))


def test_endpoints_name_their_proxies() -> None:
    lists = dict.fromkeys(("mtlsBy", "identityBy", "reasons", "hiddenBy", "callers", "routes", "rules", "policies"), ())
    endpoint = {"address": "10.0.0.1", "port": 80, "ready": True, "state": "ready", "condition": "", "workload": "cart"}
    endpoint |= {"version": "", "inMesh": True, "proxy": "cart-6d9f-x.shop-4"}
    head = {"host": "cart", "namespace": "shop", "ready": 1, "total": 1, "mtls": "STRICT", "connected": 1}
    *_, table = service_parts({**lists, **head, "endpoints": [endpoint]})
    assert isinstance(table, TextTable)
    assert [row[-1] for row in table.rows] == ["cart-6d9f-x.shop"]


@pytest.mark.parametrize(
    ("in_mesh", "connected", "expected"),
    [
        ((True, True), 1, []),
        ((True, True), 0, ["None of its sidecars is connected."]),
        ((True, False), 1, ["But 1 endpoint has no sidecar, and therefore accepts plain text from everybody."]),
        ((False, False), 0, ["But 2 endpoints have no sidecar, and therefore accept plain text from everybody."]),
    ],
)
def test_endpoints_without_a_sidecar_are_counted(
    in_mesh: tuple[bool, ...], connected: int, expected: list[str]
) -> None:
    lists = dict.fromkeys(("mtlsBy", "identityBy", "reasons", "hiddenBy", "callers", "routes", "rules", "policies"), ())
    endpoint = {"address": "10.0.0.1", "port": 80, "ready": True, "state": "ready", "condition": "", "proxy": ""}
    rows = [endpoint | {"workload": "", "version": "", "inMesh": one} for one in in_mesh]
    head = {"host": "cart", "namespace": "shop", "ready": 2, "total": 2, "mtls": "STRICT", "connected": connected}
    _, _, *lines = service_parts({**lists, **head, "endpoints": rows})
    *notes, _, title, table = lines
    assert (notes, title) == (expected, "Endpoints:")
    assert isinstance(table, TextTable)
    assert [row[-1] for row in table.rows] == ["not connected" if one else "no sidecar" for one in in_mesh]
