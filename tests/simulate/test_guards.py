"""No way into a workload goes around its policies: every chain that leads to it has their filters, in one order, and no other chain has them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from testing.mesh.listeners import WEB_POD, chains, listeners, service
from testing.mesh.objects import Plain, make
from testing.mesh.world import Proxy, proxy

WEB = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"})
EDGE = proxy("router", "edge-0", "a", "10.1.0.9", {"app": "edge"})
PORTS = (
    "[{name: http, port: 80, targetPort: 8080}, {name: grpc, port: 81}, {name: grpc-web, port: 82}, {name: tcp, port: 9000}, "
    "{name: mongo, port: 9001}, {name: tls, port: 9002}, {name: any, port: 7000}]"
)
SERVICES = (WEB_POD, service("web", PORTS))
MESH = "{extensionProviders: [{name: judge, envoyExtAuthzGrpc: {service: web.a.svc.cluster.local, port: 81}}]}"
SOURCE = "rules: [{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}]"
GUARDS = (
    make("AuthorizationPolicy", "asks", f"{{action: CUSTOM, provider: {{name: judge}}, {SOURCE}}}"),
    make("AuthorizationPolicy", "audits", f"{{action: AUDIT, {SOURCE}}}"),
    make("AuthorizationPolicy", "denies", f"{{action: DENY, {SOURCE}}}"),
    make("AuthorizationPolicy", "allows", f"{{{SOURCE}}}"),
    make("RequestAuthentication", "tokens", "{jwtRules: [{issuer: i, jwks: '{\"keys\": []}'}]}"),
)
OF_HTTP = ["rbac asks", "ext_authz", "jwt_authn", "rbac audits", "rbac denies", "rbac allows"]
OF_TCP = [name for name in OF_HTTP if name != "jwt_authn"]


def guards(filters: list[Plain]) -> list[str]:
    """The filters of policies among some, in order; of rules, the policy that they are from."""
    found = []
    for one in filters:
        kind = one["name"].rpartition(".")[2]
        if kind == "rbac":
            config = one["typedConfig"]
            (rule,) = (config.get("rules") or config["shadowRules"])["policies"]
            kind = f"rbac {rule.partition('policy[')[2].partition(']')[0]}"
        if kind in OF_HTTP or kind.startswith("rbac"):
            found.append(kind)
    return found


def of_chain(chain: Plain) -> tuple[list[str], list[str]]:
    """The guards of a chain, and those that it should have by what it ends with."""
    last_filter = chain["filters"][-1]
    before = guards(chain["filters"])
    if "http_connection_manager" not in last_filter["name"]:
        return before, OF_TCP
    assert before == [], "requests are judged one by one"
    filters = last_filter["typedConfig"]["httpFilters"]
    assert filters[-1]["name"].endswith("router")
    return guards(filters), OF_HTTP


MODES = ("STRICT", "PERMISSIVE", "DISABLE")
INGRESS = make(
    "Sidecar",
    "s",
    "{ingress: [{port: {number: 8080, protocol: HTTP, name: h}, defaultEndpoint: '127.0.0.1:1'}, "
    "{port: {number: 9000, protocol: TCP, name: t}, defaultEndpoint: '127.0.0.1:2', captureMode: NONE}]}",
)


@pytest.mark.parametrize(
    ("mode", "capture", "sidecar"), [*itertools.product(MODES, ("REDIRECT", "TPROXY", "NONE"), ((), (INGRESS,)))]
)
def test_every_way_into_a_sidecars_workload_is_guarded(mode: str, capture: str, sidecar: tuple[Plain, ...]) -> None:
    modes = f"mtls: {{mode: {mode}}}, portLevelMtls: {{9000: {{mode: STRICT}}}}"
    mtls = make("PeerAuthentication", "p", f"{{selector: {{matchLabels: {{app: web}}}}, {modes}}}")
    node = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, INTERCEPTION_MODE=capture)
    found = listeners(*SERVICES, *GUARDS, mtls, *sidecar, proxy=node, mesh=MESH)
    inbound = [c for one in found.values() if one.get("trafficDirection") == "INBOUND" for c in chains(one)]
    guarded = [c for c in inbound if c.get("name") != "virtualInbound-blackhole"]
    assert bool(guarded) is (capture != "NONE" or bool(sidecar))
    for chain in guarded:
        had, wanted = of_chain(chain)
        assert had == wanted, (chain.get("name"), chain.get("filterChainMatch"))


def test_what_a_sidecar_sends_and_what_it_swallows_is_not_guarded() -> None:
    found = listeners(*SERVICES, *GUARDS, proxy=WEB, mesh=MESH)
    outbound = [c for one in found.values() if one.get("trafficDirection") == "OUTBOUND" for c in chains(one)]
    black_hole = [c for one in found.values() for c in chains(one) if c.get("name") == "virtualInbound-blackhole"]
    assert outbound
    assert black_hole
    assert [of_chain(c)[0] for c in (*outbound, *black_hole)] == [[]] * (len(outbound) + len(black_hole))


def server(number: int, protocol: str, tls: str = "") -> str:
    return f"{{port: {{number: {number}, name: p{number}, protocol: {protocol}}}, hosts: ['*']{', tls: ' + tls if tls else ''}}}"


ROUTE = "route: [{destination: {host: web.a.svc.cluster.local, port: {number: 80}}}]"
SERVERS: list[tuple[str, Any]] = [
    (server(80, "HTTP"), OF_HTTP),
    (server(443, "HTTPS", "{mode: SIMPLE, credentialName: c}"), OF_HTTP),
    (server(9000, "TCP"), OF_TCP),
    (server(9443, "TLS", "{mode: ISTIO_MUTUAL}"), OF_TCP),
    (server(8443, "TLS", "{mode: PASSTHROUGH}"), OF_TCP),
    (server(15443, "TLS", "{mode: AUTO_PASSTHROUGH}"), []),  # the workload behind ends the TLS, and judges
]


@pytest.mark.parametrize(
    ("server_", "expected"), SERVERS, ids=["HTTP", "HTTPS", "TCP", "mesh TLS", "PASSTHROUGH", "AUTO_PASSTHROUGH"]
)
def test_every_way_through_a_gateway_is_guarded_but_that_of_mesh_tls_passed_on(
    server_: str, expected: list[str]
) -> None:
    gateway = make("Gateway", "gw", f"{{selector: {{app: edge}}, servers: [{server_}]}}")
    rules = f"http: [{{{ROUTE}}}], tcp: [{{{ROUTE}}}], tls: [{{match: [{{sniHosts: [x.com]}}], {ROUTE}}}]"
    routes = make("VirtualService", "v", f"{{hosts: ['*'], gateways: [gw], {rules}}}")
    found: dict[str, Plain] = listeners(*SERVICES, *GUARDS, gateway, routes, proxy=EDGE, mesh=MESH)
    listed = [c for one in found.values() for c in chains(one)]
    assert listed
    assert [of_chain(c)[0] for c in listed] == [expected] * len(listed)


def test_the_guards_of_other_workloads_are_not_here() -> None:
    other: Proxy = proxy("sidecar", "other-0", "b", "10.1.0.7", {"app": "web"})
    found = listeners(*SERVICES, *GUARDS, proxy=other, mesh=MESH)
    assert {tuple(of_chain(c)[0]) for one in found.values() for c in chains(one)} == {()}
