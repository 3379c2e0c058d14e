"""Position and selection of the filters of WasmPlugins and TrafficExtensions."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from testing.mesh.listeners import (
    HCM,
    TCP,
    WEB,
    WEB_POD,
    Plain,
    chains,
    http_filters,
    listeners,
    network_filters,
    service,
)
from testing.mesh.objects import make
from testing.mesh.world import proxy

PREFIX, SUFFIX = "extensions.istio.io/trafficextension/", "~istio-translated-wasmplugin"
PORTS = "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000, targetPort: 9001}, {name: http-web, port: 81, targetPort: 8081}]"
WEB_SERVICE = service("web", PORTS)
API = service("api", "[{name: http, port: 80}, {name: http-web, port: 81}, {name: tcp, port: 7000}]", "10.96.0.2")
STOCK = msgspec.structs.replace(
    WEB, extensions=frozenset(("envoy.filters.http.router", "envoy.filters.network.tcp_proxy"))
)
LUA = "lua: {inlineCode: 'x = 1'}"


def plugin(name: str, spec: str = "", namespace: str = "a", day: int = 1) -> Plain:
    return make("WasmPlugin", name, f"{{url: r.example.com/{name}{', ' + spec if spec else ''}}}", namespace, day)


def extension(name: str, spec: str = LUA, namespace: str = "a", day: int = 1) -> Plain:
    return make("TrafficExtension", name, f"{{{spec}}}", namespace, day)


def extension_names(names: list[str]) -> list[str]:
    """Return the names of the extensions among filters."""
    return [n.removeprefix(PREFIX).removesuffix(SUFFIX).partition(".")[2] for n in names if n.startswith(PREFIX)]


def http_extensions(listener: Plain, port: int | None = None) -> list[list[str]]:
    """Return the extensions of each HTTP connection manager, optionally only of the chains for a port."""
    filter_chains = [
        c for c in chains(listener) if port is None or c.get("filterChainMatch", {}).get("destinationPort") == port
    ]
    return [
        extension_names([f["name"] for f in c["filters"][-1]["typedConfig"]["httpFilters"]])
        for c in filter_chains
        if c["filters"][-1]["name"] == HCM
    ]


def network_extensions(listener: Plain, port: int) -> list[str]:
    """Return the extensions among the network filters of the TCP chains for a port, which must be equal."""
    names = [
        tuple(extension_names(network_filters(c)))
        for c in chains(listener)
        if c.get("filterChainMatch", {}).get("destinationPort") == port and c["filters"][-1]["name"] == TCP
    ]
    assert len(set(names)) == 1, names
    return list(names[0])


def test_extensions_are_placed_by_phase() -> None:
    jwt = make("RequestAuthentication", "jwt", "{jwtRules: [{issuer: me, jwks: '{\"keys\": []}'}]}")
    deny = make("AuthorizationPolicy", "deny", "{action: DENY, rules: [{to: [{operation: {paths: [/x]}}]}]}")
    phases = [plugin(phase.lower(), f"phase: {phase}") for phase in ("STATS", "AUTHZ", "AUTHN")]
    filters = http_filters(listeners(WEB_SERVICE, WEB_POD, jwt, deny, *phases, plugin("none"))["virtualInbound"])
    names = [n.rpartition(".")[2].removesuffix(SUFFIX) for n in filters]
    assert names == [
        "metadata_exchange",
        "authn",
        "jwt_authn",
        "authz",
        "rbac",
        "stats",
        "none",
        "grpc_stats",
        "fault",
        "cors",
        "router",
    ]


def test_order_by_priority_namespace_and_age() -> None:
    objects = [
        plugin("mesh-old", namespace="istio-system", day=1),
        plugin("young", day=3),
        plugin("old", day=2),
        plugin("low", "priority: -5", day=4),
        plugin("high", "priority: 5", namespace="istio-system", day=9),
        extension("middle", f"{LUA}, priority: 0", day=9),
    ]
    for order in itertools.islice(itertools.permutations(objects), 0, None, 240):
        assert http_extensions(listeners(WEB_SERVICE, WEB_POD, *order)["virtualInbound"])[0] == [
            "high",
            "middle",
            "low",
            "old",
            "young",
            "mesh-old",
        ]


def test_missing_priority_is_the_lowest() -> None:
    result = listeners(WEB_SERVICE, WEB_POD, plugin("old", day=1), plugin("lowest", "priority: -2147483648", day=2))
    assert http_extensions(result["virtualInbound"])[0] == ["old", "lowest"]


@pytest.mark.parametrize(
    ("match", "inbound", "outbound"),
    [
        ("", {8080, 8081}, {80, 81}),
        ("match: [{mode: SERVER}]", {8080, 8081}, set()),
        ("match: [{mode: CLIENT}]", set(), {80, 81}),
        ("match: [{mode: CLIENT_AND_SERVER, ports: [{number: 80}]}]", set(), {80}),
        ("match: [{ports: [{number: 8080}]}]", {8080}, set()),
        ("match: [{mode: SERVER, ports: [{number: 8081}]}, {mode: CLIENT}]", {8081}, {80, 81}),
        ("match: [{mode: SERVER, ports: [{number: 80}]}, {ports: [{number: 81}, {number: 8080}]}]", {8080}, {81}),
    ],
)
def test_extension_traffic_match(match: str, inbound: set[int], outbound: set[int]) -> None:
    """Server traffic is matched by the port that the workload listens on."""
    result = listeners(WEB_SERVICE, WEB_POD, API, plugin("x", match))
    assert {port for port in (8080, 8081) if all(http_extensions(result["virtualInbound"], port))} == inbound
    assert {port for port in (80, 81) if http_extensions(result[f"0.0.0.0_{port}"])[0]} == outbound


def test_catch_all_chains_have_extensions_without_port_match() -> None:
    port_8080, unrestricted = plugin("some", "match: [{ports: [{number: 8080}]}]"), plugin("every")
    inbound = listeners(WEB_SERVICE, WEB_POD, port_8080, unrestricted)["virtualInbound"]
    assert {c["name"] for c in chains(inbound) if c["name"].startswith("virtualInbound-catchall")} == {
        "virtualInbound-catchall-http"
    }
    assert http_extensions(inbound, None)[0] == ["every"]
    assert http_extensions(inbound, 8080)[0] == ["every", "some"]


def test_network_extensions_precede_terminal_filters() -> None:
    """TCP filters match the service port, and those before HTTP the workload port. Passthrough chains have no extensions."""
    wasm = plugin("x", "type: NETWORK")
    ports = "{number: 9000}, {number: 8080}, {number: 7000}"
    result = listeners(WEB_SERVICE, WEB_POD, API, wasm, plugin("tcp", f"type: NETWORK, match: [{{ports: [{ports}]}}]"))
    inbound = result["virtualInbound"]
    assert network_extensions(inbound, 9001) == ["tcp", "x"]
    assert [
        extension_names(network_filters(c))
        for c in chains(inbound)
        if c.get("filterChainMatch", {}).get("destinationPort") == 8080
    ] == [["tcp", "x"]] * 2
    assert extension_names(network_filters(chains(result["10.96.0.2_7000"])[0])) == ["tcp", "x"]
    assert [extension_names(network_filters(c)) for c in chains(result["0.0.0.0_80"])] == [["x"], []]
    assert all(extension_names(network_filters(c)) == [] for c in chains(result["virtualOutbound"]))
    assert (
        extension_names(network_filters(next(c for c in chains(inbound) if c["name"] == "virtualInbound-blackhole")))
        == []
    )
    assert not any(http_extensions(inbound))


def test_gateway_extensions_match_as_client_by_listener_port() -> None:
    edge = proxy("router", "edge-0", "edge", "10.1.0.9", {"istio": "ingress"})
    servers = "[{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*']}, {port: {number: 81, name: b, protocol: HTTP}, hosts: ['*']}]"
    gateway = make("Gateway", "gw", f"{{selector: {{istio: ingress}}, servers: {servers}}}", "edge")
    objects = [
        plugin(
            "client",
            "selector: {matchLabels: {istio: ingress}}, match: [{mode: CLIENT, ports: [{number: 81}]}]",
            "edge",
        ),
        plugin("server", "match: [{mode: SERVER}]", "edge"),
        plugin("tcp", "type: NETWORK", "edge"),
    ]
    result = listeners(gateway, *objects, proxy=edge)
    assert [http_extensions(result[f"0.0.0.0_{port}"]) for port in (80, 81)] == [[[]], [["client"]]]
    assert [extension_names(network_filters(c)) for c in chains(result["0.0.0.0_80"])] == [["tcp"]]


def test_wasm_uses_extension_discovery_and_lua_is_inline() -> None:
    inbound = listeners(WEB_SERVICE, WEB_POD, plugin("m"), extension("s"))["virtualInbound"]
    filters = {f["name"]: f for c in chains(inbound) for f in c["filters"][-1]["typedConfig"].get("httpFilters", ())}
    module = filters[f"{PREFIX}a.m{SUFFIX}"]["configDiscovery"]
    assert module["configSource"] == {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"}
    assert [url.rpartition(".")[2] for url in module["typeUrls"]] == ["Wasm", "RBAC"]
    assert filters[f"{PREFIX}a.s"]["typedConfig"]["defaultSourceCode"] == {"inlineString": "x = 1"}


@pytest.mark.parametrize(("strategy", "blocked"), [("FAIL_CLOSE", True), ("FAIL_RELOAD", True), ("FAIL_OPEN", False)])
def test_without_wasm_support_traffic_is_denied_unless_fail_open(strategy: str, blocked: bool) -> None:
    modules = plugin("m", f"failStrategy: {strategy}"), plugin("n", f"type: NETWORK, failStrategy: {strategy}")
    inbound = listeners(WEB_SERVICE, WEB_POD, *modules, proxy=STOCK)["virtualInbound"]
    assert http_extensions(inbound)[0] == (["m"] if blocked else [])
    assert network_extensions(inbound, 9001) == (["n"] if blocked else [])
    for chain in chains(inbound):
        for http_filter in (*chain["filters"], *chain["filters"][-1]["typedConfig"].get("httpFilters", ())):
            if http_filter["name"].startswith(PREFIX):
                assert http_filter["typedConfig"]["@type"].endswith("rbac.v3.RBAC")
                assert http_filter["typedConfig"]["rules"] == {}


def test_targets_and_selectors_select_workloads() -> None:
    other = plugin("other", "selector: {matchLabels: {app: other}}")
    target = plugin("target", "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]")
    one = plugin("one", "targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: edge}")
    result = listeners(
        WEB_SERVICE,
        WEB_POD,
        other,
        target,
        one,
        plugin("far", namespace="far"),
        plugin("mesh", namespace="istio-system"),
    )
    assert http_extensions(result["virtualInbound"])[0] == ["mesh"]
