"""Boundary values of validation rules."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.ingest.decode import decode_document


def codes(kind: str, spec: str, api: str = "networking.istio.io/v1") -> list[str]:
    plain: dict[str, Any] = {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": yaml.safe_load(spec)}
    return [problem.code for problem in decode_document(plain).problems]


def entry(
    hosts: str = "[a.com]", port: str = "{number: 80, name: http, protocol: HTTP}", more: str = "resolution: DNS"
) -> list[str]:
    return codes("ServiceEntry", f"{{hosts: {hosts}, ports: [{port}], {more}}}")


@pytest.mark.parametrize(
    ("protocol", "valid"),
    [("HTTP", True), ("TLS", True), ("HTTPS", True), ("GRPC", True), ("TCP", False), ("MONGO", False)],
)
def test_several_hosts_need_a_routable_protocol(protocol: str, valid: bool) -> None:
    port = f"{{number: 80, name: p, protocol: {protocol}}}"
    assert (entry("[a.com, b.com]", port) == []) == valid
    assert entry("[a.com]", port) == []
    assert entry("[a.com, b.com]", port, "resolution: NONE") == []


@pytest.mark.parametrize(("length", "valid"), [(63, True), (64, False)])
def test_hostname_label_length(length: int, valid: bool) -> None:
    assert (entry(f"[b.{'a' * length}.com]") == []) == valid
    assert (entry(f"[{'a' * length}.com]") == []) == valid


@pytest.mark.parametrize(("number", "valid"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_port_range(number: int, valid: bool) -> None:
    assert (entry(port=f"{{number: {number}, name: http, protocol: HTTP}}") == []) == valid


@pytest.mark.parametrize(("ports", "valid"), [(0, False), (1, True), (2, False)])
def test_unix_socket_serves_one_port(ports: int, valid: bool) -> None:
    port_list = ", ".join(f"{{number: {80 + i}, name: p{i}, protocol: HTTP}}" for i in range(ports))
    more = "resolution: STATIC, endpoints: [{address: 'unix:///run/x'}]"
    assert (
        "unix-needs-one-port" not in codes("ServiceEntry", f"{{hosts: [a.com], ports: [{port_list}], {more}}}")
    ) == valid


@pytest.mark.parametrize(("count", "valid"), [(1, True), (2, False)])
def test_dns_round_robin_has_one_endpoint(count: int, valid: bool) -> None:
    endpoints = ", ".join(f"{{address: e{i}.com}}" for i in range(count))
    assert (entry(more=f"resolution: DNS_ROUND_ROBIN, endpoints: [{endpoints}]") == []) == valid


@pytest.mark.parametrize(("resolution", "valid"), [("NONE", True), ("STATIC", True), ("DNS", False)])
def test_cidr_addresses_exclude_dns_resolution(resolution: str, valid: bool) -> None:
    problem_codes = entry(more=f"resolution: {resolution}, addresses: [10.0.0.0/8]")
    assert (problem_codes == []) == valid


@pytest.mark.parametrize(
    ("text", "valid"), [("1ms", True), ("1500us", False), ("1us", False), ("0s", False), ("2s", True)]
)
def test_duration_precision(text: str, valid: bool) -> None:
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], timeout: {text}}}]}}")
        == []
    ) == valid


@pytest.mark.parametrize(("percent", "valid"), [(-1, False), (0, True), (100, True), (101, False)])
def test_percentage_range(percent: int, valid: bool) -> None:
    fault = f"fault: {{abort: {{httpStatus: 500, percentage: {{value: {percent}}}}}}}"
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], {fault}}}]}}") == []
    ) == valid


@pytest.mark.parametrize(("weights", "valid"), [("0", True), ("0, 0", False), ("0, 1", True)])
def test_weights_are_not_all_zero(weights: str, valid: bool) -> None:
    route = ", ".join(f"{{destination: {{host: a}}, weight: {weight}}}" for weight in weights.split(", "))
    assert (codes("VirtualService", f"{{hosts: [a], http: [{{route: [{route}]}}]}}") == []) == valid


def test_route_sets_the_authority_once() -> None:
    route = "route: [{destination: {host: a}}], rewrite: {authority: b.com}"
    conflict = f"{route}, headers: {{request: {{set: {{':authority': c.com}}}}}}"
    assert codes("VirtualService", f"{{hosts: [a], http: [{{{route}}}]}}") == []
    assert codes("VirtualService", f"{{hosts: [a], http: [{{{conflict}}}]}}") != []


def test_tunnel_and_proxy_protocol_are_exclusive() -> None:
    tunnel = "tunnel: {protocol: CONNECT, targetHost: a.com, targetPort: 80}"
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{tunnel}}}}}") == []
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{tunnel.replace('CONNECT', 'GET')}}}}}") == [
        "bad-protocol"
    ]
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{tunnel}, proxyProtocol: {{version: V1}}}}}}") == [
        "exclusive-fields"
    ]


@pytest.mark.parametrize(("length", "valid"), [(253, True), (254, False)])
def test_object_name_length(length: int, valid: bool) -> None:
    plain = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a" * length}}
    assert (decode_document(plain).problems == ()) == valid


@pytest.mark.parametrize(("gateways", "valid"), [("[front]", True), ("[mesh]", False)])
def test_claim_matches_need_a_gateway(gateways: str, valid: bool) -> None:
    match = "match: [{headers: {'@request.auth.claims.group': {exact: admin}}}]"
    route = f"{{hosts: [a.com], gateways: {gateways}, http: [{{{match}, route: [{{destination: {{host: a}}}}]}}]}}"
    assert (codes("VirtualService", route) == []) == valid


@pytest.mark.parametrize(("status", "valid"), [(199, False), (200, True), (599, True), (600, False)])
def test_abort_status_range(status: int, valid: bool) -> None:
    fault = f"fault: {{abort: {{httpStatus: {status}, percentage: {{value: 1}}}}}}"
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], {fault}}}]}}") == []
    ) == valid


@pytest.mark.parametrize(("count", "valid"), [(1024, True), (1025, False)])
def test_rule_list_length(count: int, valid: bool) -> None:
    paths = ", ".join(f"/{number}" for number in range(count))
    problem_codes = codes(
        "AuthorizationPolicy", f"{{rules: [{{to: [{{operation: {{paths: [{paths}]}}}}]}}]}}", "security.istio.io/v1"
    )
    assert problem_codes == ([] if valid else ["too-many"])


@pytest.mark.parametrize(
    ("letter", "length", "valid"), [("a", 65536, True), ("a", 65537, False), ("é", 32768, True), ("é", 32769, False)]
)
def test_lua_script_length(letter: str, length: int, valid: bool) -> None:
    problem_codes = codes(
        "TrafficExtension", f"{{lua: {{inlineCode: '{letter * length}'}}}}", "extensions.istio.io/v1alpha1"
    )
    assert problem_codes == ([] if valid else ["too-long"])


@pytest.mark.parametrize(
    "spec",
    [
        "tracing: [{}]",
        "metrics: [{providers: [{name: a}]}]",
        "accessLogging: [{disabled: true}]",
        "tracing: [{disableSpanReporting: true}]",
    ],
)
def test_telemetry_needs_only_one_section(spec: str) -> None:
    assert codes("Telemetry", f"{{{spec}}}", "telemetry.istio.io/v1") == []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("loadBalancer: {localityLbSetting: {failover: [{from: a, to: b}]}}", ["failover-without-outlier-detection"]),
        ("loadBalancer: {localityLbSetting: {failover: [{from: a, to: b}]}}, outlierDetection: {}", []),
        ("loadBalancer: {localityLbSetting: {enabled: true}}", []),
        ("loadBalancer: {zoneAwareLbSetting: {}}", []),
        ("loadBalancer: {zoneAwareLbSetting: {failover: [{from: a, to: b}]}}", ["failover-without-outlier-detection"]),
    ],
)
def test_failover_needs_outlier_detection(policy: str, expected: list[str]) -> None:
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{policy}}}}}") == expected


@pytest.mark.parametrize(("port", "expected"), [("HTTP", []), ("TCP", ["no-effect"])])
def test_http_limits_need_an_http_port(port: str, expected: list[str]) -> None:
    limits = "connectionPool: {tcp: {maxConnections: 1}"
    listener = f"port: {{number: 1, protocol: {port}, name: p}}, defaultEndpoint: '127.0.0.1:1'"
    assert codes("Sidecar", f"{{ingress: [{{{listener}, {limits}, http: {{http2MaxRequests: 1}}}}}}]}}") == expected
    assert codes("Sidecar", f"{{ingress: [{{{listener}, {limits}}}}}]}}") == []


@pytest.mark.parametrize(
    ("first_match", "second_match", "unreachable"),
    [
        ("uri: {prefix: /a}", "uri: {prefix: /a/b}", True),
        ("uri: {prefix: /a/b}", "uri: {prefix: /a}", False),
        ("uri: {prefix: /a}", "uri: {prefix: /b}", False),
        ("uri: {prefix: /a}, ignoreUriCase: true", "uri: {prefix: /a/b}", False),
        ("uri: {prefix: /a}, method: {exact: GET}", "uri: {prefix: /a/b}", False),
        ("uri: {prefix: /a}", "uri: {prefix: /a/b}, method: {exact: GET}", True),
    ],
)
def test_unreachable_prefix_is_reported(first_match: str, second_match: str, unreachable: bool) -> None:
    routes = ", ".join(
        f"{{match: [{{{item}}}], route: [{{destination: {{host: a}}}}]}}" for item in (first_match, second_match)
    )
    assert codes("VirtualService", f"{{hosts: [a], http: [{routes}]}}") == (
        ["unreachable-match"] if unreachable else []
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", []), ("%REQ(x)%", []), ("50%%", []), ("50%", ["bad-header-value"]), ("a %REQ(x)% b%", ["bad-header-value"])],
)
def test_percent_signs_in_header_values(value: str, expected: list[str]) -> None:
    headers = f"headers: {{request: {{set: {{x: '{value}'}}}}}}"
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], {headers}}}]}}")
        == expected
    )


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ("mode: ISTIO_MUTUAL", []),
        ("mode: ISTIO_MUTUAL, caCertificates: /r", ["tls-certificates"]),
        ("mode: ISTIO_MUTUAL, caCrl: /c", []),
        ("mode: PASSTHROUGH, caCrl: /c", ["tls-certificates"]),
    ],
)
def test_crl_with_gateway_tls_modes(tls: str, expected: list[str]) -> None:
    server = f"port: {{number: 443, name: tls, protocol: TLS}}, hosts: [a.com], tls: {{{tls}}}"
    assert codes("Gateway", f"{{selector: {{a: b}}, servers: [{{{server}}}]}}") == expected
