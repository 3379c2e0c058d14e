"""Where the filters of users' extensions stand, and for which workloads, sides and ports."""

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


def short(names: list[str]) -> list[str]:
    """The extensions among filters, by their own names."""
    return [n.removeprefix(PREFIX).removesuffix(SUFFIX).partition(".")[2] for n in names if n.startswith(PREFIX)]


def managed(listener: Plain, port: int | None = None) -> list[list[str]]:
    """The extensions in each HTTP connection manager, or in those of chains for a port."""
    found = [
        c for c in chains(listener) if port is None or c.get("filterChainMatch", {}).get("destinationPort") == port
    ]
    return [
        short([f["name"] for f in c["filters"][-1]["typedConfig"]["httpFilters"]])
        for c in found
        if c["filters"][-1]["name"] == HCM
    ]


def connected(listener: Plain, port: int) -> list[str]:
    """The extensions among the network filters of the TCP chains for a port; they have all the same."""
    found = [
        tuple(short(network_filters(c)))
        for c in chains(listener)
        if c.get("filterChainMatch", {}).get("destinationPort") == port and c["filters"][-1]["name"] == TCP
    ]
    assert len(set(found)) == 1, found
    return list(found[0])


def test_extensions_stand_in_their_phase() -> None:
    jwt = make("RequestAuthentication", "jwt", "{jwtRules: [{issuer: me, jwks: '{\"keys\": []}'}]}")
    deny = make("AuthorizationPolicy", "deny", "{action: DENY, rules: [{to: [{operation: {paths: [/x]}}]}]}")
    phases = [plugin(phase.lower(), f"phase: {phase}") for phase in ("STATS", "AUTHZ", "AUTHN")]
    found = http_filters(listeners(WEB_SERVICE, WEB_POD, jwt, deny, *phases, plugin("none"))["virtualInbound"])
    names = [n.rpartition(".")[2].removesuffix(SUFFIX) for n in found]
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


def test_a_higher_priority_comes_first_then_the_own_namespace_then_age() -> None:
    objects = [
        plugin("mesh-old", namespace="istio-system", day=1),
        plugin("young", day=3),
        plugin("old", day=2),
        plugin("low", "priority: -5", day=4),
        plugin("high", "priority: 5", namespace="istio-system", day=9),
        extension("middle", f"{LUA}, priority: 0", day=9),
    ]
    for order in itertools.islice(itertools.permutations(objects), 0, None, 240):
        assert managed(listeners(WEB_SERVICE, WEB_POD, *order)["virtualInbound"])[0] == [
            "high",
            "middle",
            "low",
            "old",
            "young",
            "mesh-old",
        ]


def test_no_priority_is_the_lowest_there_is() -> None:
    found = listeners(WEB_SERVICE, WEB_POD, plugin("old", day=1), plugin("lowest", "priority: -2147483648", day=2))
    assert managed(found["virtualInbound"])[0] == ["old", "lowest"]


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
def test_an_extension_is_for_the_traffic_that_it_matches(match: str, inbound: set[int], outbound: set[int]) -> None:
    """The port that the workload listens on is the one that counts for a server's traffic."""
    found = listeners(WEB_SERVICE, WEB_POD, API, plugin("x", match))
    assert {port for port in (8080, 8081) if all(managed(found["virtualInbound"], port))} == inbound
    assert {port for port in (80, 81) if managed(found[f"0.0.0.0_{port}"])[0]} == outbound


def test_ports_that_nothing_names_have_the_extensions_of_all_ports() -> None:
    some, every = plugin("some", "match: [{ports: [{number: 8080}]}]"), plugin("every")
    found = listeners(WEB_SERVICE, WEB_POD, some, every)["virtualInbound"]
    assert {c["name"] for c in chains(found) if c["name"].startswith("virtualInbound-catchall")} == {
        "virtualInbound-catchall-http"
    }
    assert managed(found, None)[0] == ["every"]
    assert managed(found, 8080)[0] == ["every", "some"]


def test_extensions_of_connections_stand_before_what_sends_them_on() -> None:
    """Filters of TCP match the port of the service, those before HTTP that of the workload; traffic to nowhere that is known has none."""
    x = plugin("x", "type: NETWORK")
    ports = "{number: 9000}, {number: 8080}, {number: 7000}"
    found = listeners(WEB_SERVICE, WEB_POD, API, x, plugin("tcp", f"type: NETWORK, match: [{{ports: [{ports}]}}]"))
    inbound = found["virtualInbound"]
    assert connected(inbound, 9001) == ["tcp", "x"]
    assert [
        short(network_filters(c))
        for c in chains(inbound)
        if c.get("filterChainMatch", {}).get("destinationPort") == 8080
    ] == [["tcp", "x"]] * 2
    assert short(network_filters(chains(found["10.96.0.2_7000"])[0])) == ["tcp", "x"]
    assert [short(network_filters(c)) for c in chains(found["0.0.0.0_80"])] == [["x"], []]
    assert all(short(network_filters(c)) == [] for c in chains(found["virtualOutbound"]))
    assert short(network_filters(next(c for c in chains(inbound) if c["name"] == "virtualInbound-blackhole"))) == []
    assert not any(managed(inbound))


def test_a_gateway_has_extensions_as_a_client_by_the_port_it_listens_on() -> None:
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
    found = listeners(gateway, *objects, by=edge)
    assert [managed(found[f"0.0.0.0_{port}"]) for port in (80, 81)] == [[[]], [["client"]]]
    assert [short(network_filters(c)) for c in chains(found["0.0.0.0_80"])] == [["tcp"]]


def test_a_module_waits_for_its_configuration_and_a_script_is_there() -> None:
    found = listeners(WEB_SERVICE, WEB_POD, plugin("m"), extension("s"))["virtualInbound"]
    filters = {f["name"]: f for c in chains(found) for f in c["filters"][-1]["typedConfig"].get("httpFilters", ())}
    module = filters[f"{PREFIX}a.m{SUFFIX}"]["configDiscovery"]
    assert module["configSource"] == {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"}
    assert [url.rpartition(".")[2] for url in module["typeUrls"]] == ["Wasm", "RBAC"]
    assert filters[f"{PREFIX}a.s"]["typedConfig"]["defaultSourceCode"] == {"inlineString": "x = 1"}


@pytest.mark.parametrize(("strategy", "kept"), [("FAIL_CLOSE", True), ("FAIL_RELOAD", True), ("FAIL_OPEN", False)])
def test_a_build_that_lacks_wasm_lets_nothing_through_unless_the_module_may_fail(strategy: str, kept: bool) -> None:
    modules = plugin("m", f"failStrategy: {strategy}"), plugin("n", f"type: NETWORK, failStrategy: {strategy}")
    found = listeners(WEB_SERVICE, WEB_POD, *modules, by=STOCK)["virtualInbound"]
    assert managed(found)[0] == (["m"] if kept else [])
    assert connected(found, 9001) == (["n"] if kept else [])
    for chain in chains(found):
        for f in (*chain["filters"], *chain["filters"][-1]["typedConfig"].get("httpFilters", ())):
            if f["name"].startswith(PREFIX):
                assert f["typedConfig"]["@type"].endswith("rbac.v3.RBAC")
                assert f["typedConfig"]["rules"] == {}


def test_targets_and_selectors_choose_the_workload() -> None:
    other = plugin("other", "selector: {matchLabels: {app: other}}")
    target = plugin("target", "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]")
    one = plugin("one", "targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: edge}")
    found = listeners(
        WEB_SERVICE,
        WEB_POD,
        other,
        target,
        one,
        plugin("far", namespace="far"),
        plugin("mesh", namespace="istio-system"),
    )
    assert managed(found["virtualInbound"])[0] == ["mesh"]
