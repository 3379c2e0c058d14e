"""Inbound listeners of sidecars: filter chains by protocol and mTLS mode, and protocol inspection."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.protocol import Protocol
from pilot.envoy.listener.inbound.inbound_chains import inbound_matches
from pilot.envoy.listener.listener_filters import Inspection, build_inspectors
from testing.mesh.listeners import (
    HCM,
    WEB,
    WEB_POD,
    chains,
    destinations,
    http,
    http_filters,
    inspectors,
    last_filter,
    listeners,
    network_filters,
    service,
)
from testing.mesh.objects import make
from testing.mesh.world import proxy

PLAIN = ("http/1.1", "h2c")
MESH = ("istio-http/1.0", "istio-http/1.1", "istio-h2")


@pytest.mark.parametrize(
    ("protocol", "mode", "expected"),
    [  # each chain: HTTP or TCP, transport protocol, TLS termination
        (Protocol.HTTP, "STRICT", ["http tls ends"]),
        (Protocol.HTTP, "PERMISSIVE", ["http tls ends", "http raw_buffer"]),
        (Protocol.HTTP, "DISABLE", ["http raw_buffer"]),
        (Protocol.TCP, "STRICT", ["tcp tls ends"]),
        (Protocol.TCP, "PERMISSIVE", ["tcp tls ends", "tcp tls", "tcp raw_buffer"]),
        (Protocol.HTTPS, "DISABLE", ["tcp raw_buffer"]),
        (Protocol.UNSUPPORTED, "STRICT", ["http tls ends", "tcp tls ends"]),
        (
            Protocol.UNSUPPORTED,
            "PERMISSIVE",
            ["http tls ends", "http raw_buffer", "tcp tls ends", "tcp raw_buffer", "tcp tls"],
        ),
        (Protocol.UNSUPPORTED, "DISABLE", ["http raw_buffer", "tcp raw_buffer"]),
    ],
)
def test_chains_by_protocol_and_mode(protocol: Protocol, mode: Any, expected: list[str]) -> None:
    matches = inbound_matches(protocol, mode, PLAIN)
    assert [
        f"{'http' if m.http else 'tcp'} {m.transport}{' ends' if m.terminates_tls else ''}" for m in matches
    ] == expected
    assert len({(m.transport, m.alpns) for m in matches}) == len(matches)  # Envoy rejects chains with equal matches


def policy(spec: str, namespace: str = "a") -> dict[str, Any]:
    return make("PeerAuthentication", "p", f"{{{spec}}}", namespace)


def chains_of_port(listener: dict[str, Any], port: int) -> list[dict[str, Any]]:
    return [c for c in chains(listener) if c.get("filterChainMatch", {}).get("destinationPort") == port]


def test_service_port_chains() -> None:
    inbound = listeners(service("web", "[{name: http, port: 80, targetPort: 8080}]"), WEB_POD)["virtualInbound"]
    tls, plain = chains_of_port(inbound, 8080)
    assert [network_filters(c) for c in (tls, plain)] == [["istio.metadata_exchange", HCM]] * 2
    assert "transportSocket" in tls
    assert "transportSocket" not in plain
    routes = last_filter(plain)["routeConfig"]
    assert routes["name"] == "inbound|8080||"
    assert routes["virtualHosts"][0]["routes"][0]["decorator"] == {"operation": "web.a.svc.cluster.local:80/*"}
    assert last_filter(plain)["statPrefix"] == "inbound_0.0.0.0_8080;"


def test_oldest_service_of_a_port_wins() -> None:
    ports = ("[{name: tcp-a, port: 80, targetPort: 8080}]", "[{name: http, port: 81, targetPort: 8080}]")
    newer, older = (service("web", ports[0], day=2), service("web", ports[1], day=1))
    newer["metadata"]["name"] = "young"
    port_chains = chains_of_port(listeners(newer, older, WEB_POD)["virtualInbound"], 8080)
    assert {c["filters"][-1]["name"] for c in port_chains} == {HCM}


def test_undeclared_ports_pass_through() -> None:
    inbound = listeners(WEB_POD)["virtualInbound"]
    assert [c["name"] for c in chains(inbound)] == [
        "virtualInbound-blackhole",
        "virtualInbound-catchall-http",
        "virtualInbound-catchall-http",
        "virtualInbound",
        "virtualInbound",
        "virtualInbound",
    ]
    assert set(destinations(inbound)) == {
        "BlackHoleCluster",
        "routes InboundPassthroughCluster",
        "InboundPassthroughCluster",
    }
    assert chains(inbound)[0]["filterChainMatch"] == {"destinationPort": 15006}


@pytest.mark.parametrize(
    ("mode", "http", "tcp"),
    [  # catch-all chains: transport protocol and TLS termination
        ("PERMISSIVE", ["tls ends", "raw_buffer"], ["tls ends", "raw_buffer", "tls"]),
        ("STRICT", ["tls ends"], ["tls ends"]),
        ("DISABLE", ["raw_buffer"], ["raw_buffer"]),
    ],
)
def test_catch_all_chains_follow_the_mtls_mode(mode: str, http: list[str], tcp: list[str]) -> None:
    filter_chains = chains(listeners(WEB_POD, policy(f"mtls: {{mode: {mode}}}"))["virtualInbound"])[1:]

    def transports(name: str) -> list[str]:
        matching = [c for c in filter_chains if c["name"] == name]
        return [
            c["filterChainMatch"]["transportProtocol"] + (" ends" if "transportSocket" in c else "") for c in matching
        ]

    assert transports("virtualInbound-catchall-http") == http
    assert transports("virtualInbound") == tcp
    assert all("destinationPort" not in c["filterChainMatch"] for c in filter_chains)


def test_stat_prefix_pattern() -> None:
    mesh = 'inboundClusterStatName: "%SERVICE%_%SERVICE_PORT%_%TARGET_PORT%"'
    inbound = listeners(service("web", "[{name: tcp, port: 80, targetPort: 8080}]"), WEB_POD, mesh=mesh)[
        "virtualInbound"
    ]
    prefixes = {c["name"]: c["filters"][-1]["typedConfig"]["statPrefix"] for c in chains(inbound)}
    assert prefixes["0.0.0.0_8080"] == "web.a_80_%TARGET_PORT%"
    assert prefixes["virtualInbound"] == "_0_%TARGET_PORT%"
    assert prefixes["virtualInbound-catchall-http"] == "InboundPassthroughCluster;"


def test_port_level_mtls() -> None:
    spec = "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}, 9999: {mode: DISABLE}}"
    inbound = listeners(service("web", "[{name: http, port: 80, targetPort: 8080}]"), WEB_POD, policy(spec))[
        "virtualInbound"
    ]
    assert [c["filterChainMatch"]["transportProtocol"] for c in chains_of_port(inbound, 8080)] == ["raw_buffer"]
    assert [c["name"] for c in chains_of_port(inbound, 9999)] == ["virtualInbound-catchall-http", "virtualInbound"]
    catch_all_chains = [c for c in chains(inbound) if "destinationPort" not in c["filterChainMatch"]]
    assert {c["filterChainMatch"]["transportProtocol"] for c in catch_all_chains} == {"tls"}


@pytest.mark.parametrize(
    ("by_port", "expected"),
    [
        ({0: Inspection(True, True), 8080: Inspection(True, True)}, ["tls", "http"]),
        ({0: Inspection(True, True), 8080: Inspection(True, False)}, ["tls", "http not 8080"]),
        ({0: Inspection(True, True), 90: Inspection(), 80: Inspection(True, True)}, ["tls not 90", "http not 90"]),
        (
            {0: Inspection(False, True), 90: Inspection(True, False), 80: Inspection()},
            ["tls only 90", "http not 80,90"],
        ),
        ({0: Inspection(), 90: Inspection()}, []),
    ],
)
def test_inspectors_are_disabled_on_ports_without_inspection(
    by_port: dict[int, Inspection], expected: list[str]
) -> None:
    def describe(inbound: Any) -> str:
        name = inbound.name.rpartition(".")[2].partition("_")[0]
        if not inbound.HasField("filter_disabled"):
            return str(name)
        disabled = inbound.filter_disabled
        only = disabled.HasField("not_match")
        disabled = disabled.not_match if only else disabled
        rules = disabled.or_match.rules if disabled.HasField("or_match") else [disabled]
        assert all(r.destination_port_range.end == r.destination_port_range.start + 1 for r in rules)
        return f"{name} {'only' if only else 'not'} {','.join(str(r.destination_port_range.start) for r in rules)}"

    assert [describe(f) for f in build_inspectors(by_port)] == expected


@pytest.mark.parametrize(
    ("mode", "filters", "transparent"),
    [
        ("REDIRECT", ["original_dst", "tls_inspector", "http_inspector"], None),
        ("TPROXY", ["original_dst", "original_src", "tls_inspector", "http_inspector"], True),
    ],
)
def test_interception_modes(mode: str, filters: list[str], transparent: bool | None) -> None:
    inbound = listeners(
        WEB_POD, proxy=proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, INTERCEPTION_MODE=mode)
    )["virtualInbound"]
    assert inspectors(inbound) == filters
    assert inbound.get("transparent") == transparent


def ingress(text: str, extra: str = "") -> dict[str, Any]:
    return make("Sidecar", "s", f"{{ingress: [{text}]{extra}}}")


def test_ingress_listeners_replace_services() -> None:
    listener = "{port: {number: 7000, protocol: TCP, name: t}, defaultEndpoint: '127.0.0.1:7001'}"
    shop = service("web", "[{name: http, port: 80, targetPort: 8080}]")
    inbound = listeners(shop, WEB_POD, ingress(listener))["virtualInbound"]
    assert (len(chains_of_port(inbound, 7000)), len(chains_of_port(inbound, 8080))) == (3, 0)
    assert chains_of_port(inbound, 7000)[0]["metadata"]["filterMetadata"]["istio"]["config"].endswith("/sidecar/s")
    merged_inbound = listeners(
        shop, WEB_POD, ingress(listener), PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE="true"
    )["virtualInbound"]
    assert (len(chains_of_port(merged_inbound, 7000)), len(chains_of_port(merged_inbound, 8080))) == (3, 2)


def test_ingress_listener_without_capture_binds_the_pod_ip() -> None:
    listener = "{port: {number: 7000, protocol: HTTP, name: h}, captureMode: NONE, defaultEndpoint: '127.0.0.1:7001'}"
    result = listeners(WEB_POD, ingress(listener))
    assert not chains_of_port(result["virtualInbound"], 7000)
    assert inspectors(result["10.1.0.1_7000"]) == ["tls_inspector"]
    assert destinations(result["10.1.0.1_7000"]) == ["routes inbound|7000||"] * 2


def test_ingress_listeners_cannot_use_proxy_ports() -> None:
    for number in (15001, 15006):
        listener = f"{{port: {{number: {number}, protocol: TCP, name: t}}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: '127.0.0.1:7001'}}"
        assert set(listeners(WEB_POD, ingress(listener))) == {"virtualInbound", "virtualOutbound"}


def test_sidecar_tls_termination_needs_the_flag() -> None:
    tls = "tls: {mode: SIMPLE, privateKey: /k, serverCertificate: /c}"
    listener = f"{{port: {{number: 7000, protocol: HTTPS, name: h}}, {tls}, defaultEndpoint: '127.0.0.1:7001'}}"
    off = policy("mtls: {mode: DISABLE}")
    (terminated,) = chains_of_port(
        listeners(WEB_POD, ingress(listener), off, ENABLE_TLS_ON_SIDECAR_INGRESS="true")["virtualInbound"], 7000
    )
    assert terminated["filters"][-1]["name"] == HCM
    assert terminated["transportSocket"]["typedConfig"]["requireClientCertificate"] is False
    (passthrough,) = chains_of_port(listeners(WEB_POD, ingress(listener), off)["virtualInbound"], 7000)
    assert "transportSocket" not in passthrough
    assert passthrough["filters"][-1]["name"] != HCM


@pytest.mark.parametrize(
    ("mode", "allowed", "client_certificate"),
    [  # of each chain: whether a client certificate is required; None without TLS termination
        ("DISABLE", True, [False]),
        ("DISABLE", False, [None]),
        ("STRICT", True, [True]),
        ("STRICT", False, [True]),
        ("PERMISSIVE", True, [True, None]),
        ("UNSET", True, [True, None]),
    ],
)
def test_mesh_mtls_overrides_sidecar_tls(mode: str, allowed: bool, client_certificate: list[bool | None]) -> None:
    listener = (
        "{port: {number: 7000, protocol: HTTPS, name: h}, tls: {mode: SIMPLE, privateKey: /k, serverCertificate: /c}}"
    )
    result = listeners(
        WEB_POD,
        ingress(listener),
        policy(f"mtls: {{mode: {mode}}}"),
        ENABLE_TLS_ON_SIDECAR_INGRESS=str(allowed).lower(),
    )
    sockets = [c.get("transportSocket") for c in chains_of_port(result["virtualInbound"], 7000)]
    requirements = [s["typedConfig"]["requireClientCertificate"] if s is not None else None for s in sockets]
    assert requirements[: len(client_certificate)] == client_certificate
    assert set(requirements[len(client_certificate) :]) <= {None}


def test_interception_mode_none_has_only_ingress_listeners() -> None:
    client = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, INTERCEPTION_MODE="NONE")
    shop = service("web", "[{name: http, port: 80, targetPort: 8080}]")
    sidecar = ingress("{port: {number: 7000, protocol: HTTP, name: h}, defaultEndpoint: '127.0.0.1:7001'}")
    assert set(listeners(shop, WEB_POD, proxy=client)) == {"127.0.0.1_80"}
    assert set(listeners(shop, WEB_POD, sidecar, proxy=client)) == {"127.0.0.1_80", "10.1.0.1_7000"}


def test_jwt_filter_follows_metadata_exchange() -> None:
    keys = '{"keys": []}'
    rule = f"{{selector: {{matchLabels: {{app: web}}}}, jwtRules: [{{issuer: b, jwks: '{keys}'}}, {{issuer: a, jwksUri: 'https://x.com/k'}}]}}"
    token = make("RequestAuthentication", "r", rule)
    token["apiVersion"] = "security.istio.io/v1"
    inbound = listeners(WEB_POD, token)["virtualInbound"]
    assert http_filters(inbound)[:2] == ["istio.metadata_exchange", "envoy.filters.http.jwt_authn"]
    providers = http(inbound)["httpFilters"][1]["typedConfig"]["providers"]
    assert [providers[n]["issuer"] for n in sorted(providers)] == ["a", "b"]
    assert "nobody" in providers["origins-0"]["localJwks"]["inlineString"]  # placeholder keys reject every token


def test_span_tags_name_the_workload() -> None:
    tags = {
        t["tag"]: t["literal"]["value"]
        for t in http(listeners(WEB_POD, proxy=WEB)["virtualInbound"])["tracing"]["customTags"]
        if "literal" in t
    }
    assert tags == {
        "istio.canonical_revision": "latest",
        "istio.canonical_service": "unknown",
        "istio.cluster_id": "Kubernetes",
        "istio.mesh_id": "cluster.local",
        "istio.namespace": "a",
    }


def test_tracing_can_be_disabled() -> None:
    assert "tracing" not in http(listeners(WEB_POD, mesh="enableTracing: false")["virtualInbound"])
