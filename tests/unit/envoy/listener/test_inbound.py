"""Inbound listeners of sidecars: chains by protocol and by the TLS that clients must come with, and what is inspected where."""

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
    http,
    http_filters,
    inspectors,
    last,
    leads,
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
    [  # each chain: does it speak HTTP, over which transport, does it end TLS
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
    found = inbound_matches(protocol, mode, PLAIN)
    assert [
        f"{'http' if m.http else 'tcp'} {m.transport}{' ends' if m.terminates_tls else ''}" for m in found
    ] == expected
    assert len({(m.transport, m.alpns) for m in found}) == len(found)  # Envoy refuses two chains of one condition


def policy(spec: str, namespace: str = "a") -> dict[str, Any]:
    return make("PeerAuthentication", "p", f"{{{spec}}}", namespace)


def of_port(listener: dict[str, Any], port: int) -> list[dict[str, Any]]:
    return [c for c in chains(listener) if c.get("filterChainMatch", {}).get("destinationPort") == port]


def test_a_port_of_a_service() -> None:
    found = listeners(service("web", "[{name: http, port: 80, targetPort: 8080}]"), WEB_POD)["virtualInbound"]
    tls, plain = of_port(found, 8080)
    assert [network_filters(c) for c in (tls, plain)] == [["istio.metadata_exchange", HCM]] * 2
    assert "transportSocket" in tls
    assert "transportSocket" not in plain
    routes = last(plain)["routeConfig"]
    assert routes["name"] == "inbound|8080||"
    assert routes["virtualHosts"][0]["routes"][0]["decorator"] == {"operation": "web.a.svc.cluster.local:80/*"}
    assert last(plain)["statPrefix"] == "inbound_0.0.0.0_8080;"


def test_the_oldest_of_the_services_of_a_port_counts() -> None:
    ports = ("[{name: tcp-a, port: 80, targetPort: 8080}]", "[{name: http, port: 81, targetPort: 8080}]")
    young, old = (service("web", ports[0], day=2), service("web", ports[1], day=1))
    young["metadata"]["name"] = "young"
    found = of_port(listeners(young, old, WEB_POD)["virtualInbound"], 8080)
    assert {c["filters"][-1]["name"] for c in found} == {HCM}


def test_what_nothing_names_passes_through() -> None:
    found = listeners(WEB_POD)["virtualInbound"]
    assert [c["name"] for c in chains(found)] == [
        "virtualInbound-blackhole",
        "virtualInbound-catchall-http",
        "virtualInbound-catchall-http",
        "virtualInbound",
        "virtualInbound",
        "virtualInbound",
    ]
    assert set(leads(found)) == {"BlackHoleCluster", "routes InboundPassthroughCluster", "InboundPassthroughCluster"}
    assert chains(found)[0]["filterChainMatch"] == {"destinationPort": 15006}


@pytest.mark.parametrize(
    ("mode", "http", "tcp"),
    [  # of the chains that take everything: transport, and whether TLS ends there
        ("PERMISSIVE", ["tls ends", "raw_buffer"], ["tls ends", "raw_buffer", "tls"]),
        ("STRICT", ["tls ends"], ["tls ends"]),
        ("DISABLE", ["raw_buffer"], ["raw_buffer"]),
    ],
)
def test_chains_that_take_everything_follow_the_mode(mode: str, http: list[str], tcp: list[str]) -> None:
    found = chains(listeners(WEB_POD, policy(f"mtls: {{mode: {mode}}}"))["virtualInbound"])[1:]

    def said(name: str) -> list[str]:
        matching = [c for c in found if c["name"] == name]
        return [
            c["filterChainMatch"]["transportProtocol"] + (" ends" if "transportSocket" in c else "") for c in matching
        ]

    assert said("virtualInbound-catchall-http") == http
    assert said("virtualInbound") == tcp
    assert all("destinationPort" not in c["filterChainMatch"] for c in found)


def test_statistics_by_a_pattern() -> None:
    mesh = 'inboundClusterStatName: "%SERVICE%_%SERVICE_PORT%_%TARGET_PORT%"'
    found = listeners(service("web", "[{name: tcp, port: 80, targetPort: 8080}]"), WEB_POD, mesh=mesh)["virtualInbound"]
    prefixes = {c["name"]: c["filters"][-1]["typedConfig"]["statPrefix"] for c in chains(found)}
    assert prefixes["0.0.0.0_8080"] == "web.a_80_%TARGET_PORT%"
    assert prefixes["virtualInbound"] == "_0_%TARGET_PORT%"
    assert prefixes["virtualInbound-catchall-http"] == "InboundPassthroughCluster;"


def test_a_port_with_a_mode_of_its_own() -> None:
    spec = "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}, 9999: {mode: DISABLE}}"
    found = listeners(service("web", "[{name: http, port: 80, targetPort: 8080}]"), WEB_POD, policy(spec))[
        "virtualInbound"
    ]
    assert [c["filterChainMatch"]["transportProtocol"] for c in of_port(found, 8080)] == ["raw_buffer"]
    assert [c["name"] for c in of_port(found, 9999)] == ["virtualInbound-catchall-http", "virtualInbound"]
    everything = [c for c in chains(found) if "destinationPort" not in c["filterChainMatch"]]
    assert {c["filterChainMatch"]["transportProtocol"] for c in everything} == {"tls"}


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
def test_inspection_leaves_out_ports_that_need_none(by_port: dict[int, Inspection], expected: list[str]) -> None:
    def said(found: Any) -> str:
        name = found.name.rpartition(".")[2].partition("_")[0]
        if not found.HasField("filter_disabled"):
            return str(name)
        disabled = found.filter_disabled
        only = disabled.HasField("not_match")
        disabled = disabled.not_match if only else disabled
        rules = disabled.or_match.rules if disabled.HasField("or_match") else [disabled]
        assert all(r.destination_port_range.end == r.destination_port_range.start + 1 for r in rules)
        return f"{name} {'only' if only else 'not'} {','.join(str(r.destination_port_range.start) for r in rules)}"

    assert [said(f) for f in build_inspectors(by_port)] == expected


@pytest.mark.parametrize(
    ("mode", "filters", "transparent"),
    [
        ("REDIRECT", ["original_dst", "tls_inspector", "http_inspector"], None),
        ("TPROXY", ["original_dst", "original_src", "tls_inspector", "http_inspector"], True),
    ],
)
def test_how_traffic_is_captured(mode: str, filters: list[str], transparent: bool | None) -> None:
    found = listeners(WEB_POD, by=proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, INTERCEPTION_MODE=mode))[
        "virtualInbound"
    ]
    assert inspectors(found) == filters
    assert found.get("transparent") == transparent


def ingress(text: str, extra: str = "") -> dict[str, Any]:
    return make("Sidecar", "s", f"{{ingress: [{text}]{extra}}}")


def test_ingress_listeners_take_the_place_of_services() -> None:
    own = "{port: {number: 7000, protocol: TCP, name: t}, defaultEndpoint: '127.0.0.1:7001'}"
    shop = service("web", "[{name: http, port: 80, targetPort: 8080}]")
    found = listeners(shop, WEB_POD, ingress(own))["virtualInbound"]
    assert (len(of_port(found, 7000)), len(of_port(found, 8080))) == (3, 0)
    assert of_port(found, 7000)[0]["metadata"]["filterMetadata"]["istio"]["config"].endswith("/sidecar/s")
    merged = listeners(shop, WEB_POD, ingress(own), PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE="true")[
        "virtualInbound"
    ]
    assert (len(of_port(merged, 7000)), len(of_port(merged, 8080))) == (3, 2)


def test_an_ingress_listener_on_a_port_of_the_pod() -> None:
    own = "{port: {number: 7000, protocol: HTTP, name: h}, captureMode: NONE, defaultEndpoint: '127.0.0.1:7001'}"
    found = listeners(WEB_POD, ingress(own))
    assert not of_port(found["virtualInbound"], 7000)
    assert inspectors(found["10.1.0.1_7000"]) == ["tls_inspector"]
    assert leads(found["10.1.0.1_7000"]) == ["routes inbound|7000||"] * 2


def test_an_ingress_listener_leaves_the_ports_of_the_proxy_alone() -> None:
    for number in (15001, 15006):
        own = f"{{port: {{number: {number}, protocol: TCP, name: t}}, bind: 0.0.0.0, captureMode: NONE, defaultEndpoint: '127.0.0.1:7001'}}"
        assert set(listeners(WEB_POD, ingress(own))) == {"virtualInbound", "virtualOutbound"}


def test_tls_that_a_sidecar_ends_counts_only_without_the_meshs() -> None:
    tls = "tls: {mode: SIMPLE, privateKey: /k, serverCertificate: /c}"
    own = f"{{port: {{number: 7000, protocol: HTTPS, name: h}}, {tls}, defaultEndpoint: '127.0.0.1:7001'}}"
    off = policy("mtls: {mode: DISABLE}")
    (ended,) = of_port(
        listeners(WEB_POD, ingress(own), off, ENABLE_TLS_ON_SIDECAR_INGRESS="true")["virtualInbound"], 7000
    )
    assert ended["filters"][-1]["name"] == HCM
    assert ended["transportSocket"]["typedConfig"]["requireClientCertificate"] is False
    (passed,) = of_port(listeners(WEB_POD, ingress(own), off)["virtualInbound"], 7000)
    assert "transportSocket" not in passed
    assert passed["filters"][-1]["name"] != HCM


@pytest.mark.parametrize(
    ("mode", "allowed", "client_certificate"),
    [  # of each chain of the port: must clients have a certificate of the mesh; None for no TLS that ends there
        ("DISABLE", True, [False]),
        ("DISABLE", False, [None]),
        ("STRICT", True, [True]),
        ("STRICT", False, [True]),
        ("PERMISSIVE", True, [True, None]),
        ("UNSET", True, [True, None]),
    ],
)
def test_mutual_tls_of_the_mesh_comes_before_a_sidecars_own_tls(
    mode: str, allowed: bool, client_certificate: list[bool | None]
) -> None:
    own = "{port: {number: 7000, protocol: HTTPS, name: h}, tls: {mode: SIMPLE, privateKey: /k, serverCertificate: /c}}"
    found = listeners(
        WEB_POD, ingress(own), policy(f"mtls: {{mode: {mode}}}"), ENABLE_TLS_ON_SIDECAR_INGRESS=str(allowed).lower()
    )
    sockets = [c.get("transportSocket") for c in of_port(found["virtualInbound"], 7000)]
    ended = [s["typedConfig"]["requireClientCertificate"] if s is not None else None for s in sockets]
    assert ended[: len(client_certificate)] == client_certificate
    assert set(ended[len(client_certificate) :]) <= {None}


def test_in_mode_none_only_ingress_listeners_are_there() -> None:
    by = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, INTERCEPTION_MODE="NONE")
    shop = service("web", "[{name: http, port: 80, targetPort: 8080}]")
    own = ingress("{port: {number: 7000, protocol: HTTP, name: h}, defaultEndpoint: '127.0.0.1:7001'}")
    assert set(listeners(shop, WEB_POD, by=by)) == {"127.0.0.1_80"}
    assert set(listeners(shop, WEB_POD, own, by=by)) == {"127.0.0.1_80", "10.1.0.1_7000"}


def test_tokens_are_checked_before_all_but_metadata() -> None:
    keys = '{"keys": []}'
    rule = f"{{selector: {{matchLabels: {{app: web}}}}, jwtRules: [{{issuer: b, jwks: '{keys}'}}, {{issuer: a, jwksUri: 'https://x.com/k'}}]}}"
    token = make("RequestAuthentication", "r", rule)
    token["apiVersion"] = "security.istio.io/v1"
    found = listeners(WEB_POD, token)["virtualInbound"]
    assert http_filters(found)[:2] == ["istio.metadata_exchange", "envoy.filters.http.jwt_authn"]
    providers = http(found)["httpFilters"][1]["typedConfig"]["providers"]
    assert [providers[n]["issuer"] for n in sorted(providers)] == ["a", "b"]
    assert "nobody" in providers["origins-0"]["localJwks"]["inlineString"]  # keys that are not known let nobody in


def test_spans_name_the_workload() -> None:
    tags = {
        t["tag"]: t["literal"]["value"]
        for t in http(listeners(WEB_POD, by=WEB)["virtualInbound"])["tracing"]["customTags"]
        if "literal" in t
    }
    assert tags == {
        "istio.canonical_revision": "latest",
        "istio.canonical_service": "unknown",
        "istio.cluster_id": "Kubernetes",
        "istio.mesh_id": "cluster.local",
        "istio.namespace": "a",
    }


def test_no_spans_where_the_mesh_has_none() -> None:
    assert "tracing" not in http(listeners(WEB_POD, mesh="enableTracing: false")["virtualInbound"])
