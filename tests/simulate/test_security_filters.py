"""Security filters cannot be bypassed: every filter chain to a workload has them in the same order, and no other chain has them."""

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
POLICIES = (
    make("AuthorizationPolicy", "asks", f"{{action: CUSTOM, provider: {{name: judge}}, {SOURCE}}}"),
    make("AuthorizationPolicy", "audits", f"{{action: AUDIT, {SOURCE}}}"),
    make("AuthorizationPolicy", "denies", f"{{action: DENY, {SOURCE}}}"),
    make("AuthorizationPolicy", "allows", f"{{{SOURCE}}}"),
    make("RequestAuthentication", "tokens", "{jwtRules: [{issuer: i, jwks: '{\"keys\": []}'}]}"),
)
HTTP_FILTERS = ["rbac asks", "ext_authz", "jwt_authn", "rbac audits", "rbac denies", "rbac allows"]
TCP_FILTERS = [name for name in HTTP_FILTERS if name != "jwt_authn"]


def security_filters(filters: list[Plain]) -> list[str]:
    """Return the security filters in order, with the policy of each RBAC filter."""
    kinds = []
    for network_filter in filters:
        kind = network_filter["name"].rpartition(".")[2]
        if kind == "rbac":
            config = network_filter["typedConfig"]
            (rule,) = (config.get("rules") or config["shadowRules"])["policies"]
            kind = f"rbac {rule.partition('policy[')[2].partition(']')[0]}"
        if kind in HTTP_FILTERS or kind.startswith("rbac"):
            kinds.append(kind)
    return kinds


def actual_and_expected(chain: Plain) -> tuple[list[str], list[str]]:
    """Return the security filters of a chain, and the expected ones for its terminal filter."""
    last_filter = chain["filters"][-1]
    network_filters = security_filters(chain["filters"])
    if "http_connection_manager" not in last_filter["name"]:
        return network_filters, TCP_FILTERS
    assert network_filters == [], "HTTP chains have only HTTP security filters"
    filters = last_filter["typedConfig"]["httpFilters"]
    assert filters[-1]["name"].endswith("router")
    return security_filters(filters), HTTP_FILTERS


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
def test_inbound_chains_have_security_filters(mode: str, capture: str, sidecar: tuple[Plain, ...]) -> None:
    modes = f"mtls: {{mode: {mode}}}, portLevelMtls: {{9000: {{mode: STRICT}}}}"
    mtls = make("PeerAuthentication", "p", f"{{selector: {{matchLabels: {{app: web}}}}, {modes}}}")
    node = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, INTERCEPTION_MODE=capture)
    by_name = listeners(*SERVICES, *POLICIES, mtls, *sidecar, proxy=node, mesh=MESH)
    inbound = [
        c for listener in by_name.values() if listener.get("trafficDirection") == "INBOUND" for c in chains(listener)
    ]
    protected = [c for c in inbound if c.get("name") != "virtualInbound-blackhole"]
    assert bool(protected) is (capture != "NONE" or bool(sidecar))
    for chain in protected:
        actual, expected = actual_and_expected(chain)
        assert actual == expected, (chain.get("name"), chain.get("filterChainMatch"))


def test_outbound_and_blackhole_chains_have_no_security_filters() -> None:
    by_name = listeners(*SERVICES, *POLICIES, proxy=WEB, mesh=MESH)
    outbound = [
        c for listener in by_name.values() if listener.get("trafficDirection") == "OUTBOUND" for c in chains(listener)
    ]
    black_hole = [
        c for listener in by_name.values() for c in chains(listener) if c.get("name") == "virtualInbound-blackhole"
    ]
    assert outbound
    assert black_hole
    assert [actual_and_expected(c)[0] for c in (*outbound, *black_hole)] == [[]] * (len(outbound) + len(black_hole))


def server(number: int, protocol: str, tls: str = "") -> str:
    return f"{{port: {{number: {number}, name: p{number}, protocol: {protocol}}}, hosts: ['*']{', tls: ' + tls if tls else ''}}}"


ROUTE = "route: [{destination: {host: web.a.svc.cluster.local, port: {number: 80}}}]"
SERVERS: list[tuple[str, Any]] = [
    (server(80, "HTTP"), HTTP_FILTERS),
    (server(443, "HTTPS", "{mode: SIMPLE, credentialName: c}"), HTTP_FILTERS),
    (server(9000, "TCP"), TCP_FILTERS),
    (server(9443, "TLS", "{mode: ISTIO_MUTUAL}"), TCP_FILTERS),
    (server(8443, "TLS", "{mode: PASSTHROUGH}"), TCP_FILTERS),
    (server(15443, "TLS", "{mode: AUTO_PASSTHROUGH}"), []),  # the workload terminates TLS and enforces its policies
]


@pytest.mark.parametrize(
    ("server_", "expected"), SERVERS, ids=["HTTP", "HTTPS", "TCP", "mesh TLS", "PASSTHROUGH", "AUTO_PASSTHROUGH"]
)
def test_gateway_chains_have_security_filters(server_: str, expected: list[str]) -> None:
    gateway = make("Gateway", "gw", f"{{selector: {{app: edge}}, servers: [{server_}]}}")
    rules = f"http: [{{{ROUTE}}}], tcp: [{{{ROUTE}}}], tls: [{{match: [{{sniHosts: [x.com]}}], {ROUTE}}}]"
    routes = make("VirtualService", "v", f"{{hosts: ['*'], gateways: [gw], {rules}}}")
    by_name: dict[str, Plain] = listeners(*SERVICES, *POLICIES, gateway, routes, proxy=EDGE, mesh=MESH)
    gateway_chains = [c for listener in by_name.values() for c in chains(listener)]
    assert gateway_chains
    assert [actual_and_expected(c)[0] for c in gateway_chains] == [expected] * len(gateway_chains)


def test_other_workloads_have_no_security_filters() -> None:
    other: Proxy = proxy("sidecar", "other-0", "b", "10.1.0.7", {"app": "web"})
    by_name = listeners(*SERVICES, *POLICIES, proxy=other, mesh=MESH)
    assert {tuple(actual_and_expected(c)[0]) for listener in by_name.values() for c in chains(listener)} == {()}
