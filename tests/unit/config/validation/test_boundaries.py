"""The last right value and the first wrong one, and what a rule leaves alone."""

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
    ("protocol", "fine"),
    [("HTTP", True), ("TLS", True), ("HTTPS", True), ("GRPC", True), ("TCP", False), ("MONGO", False)],
)
def test_several_hosts_need_a_protocol_that_tells_them_apart(protocol: str, fine: bool) -> None:
    port = f"{{number: 80, name: p, protocol: {protocol}}}"
    assert (entry("[a.com, b.com]", port) == []) == fine
    assert entry("[a.com]", port) == []
    assert entry("[a.com, b.com]", port, "resolution: NONE") == []


@pytest.mark.parametrize(("length", "fine"), [(63, True), (64, False)])
def test_a_part_of_a_host_name_has_at_most_63_characters(length: int, fine: bool) -> None:
    assert (entry(f"[b.{'a' * length}.com]") == []) == fine
    assert (entry(f"[{'a' * length}.com]") == []) == fine


@pytest.mark.parametrize(("number", "fine"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_the_first_and_last_port(number: int, fine: bool) -> None:
    assert (entry(port=f"{{number: {number}, name: http, protocol: HTTP}}") == []) == fine


@pytest.mark.parametrize(("ports", "fine"), [(0, False), (1, True), (2, False)])
def test_a_unix_socket_serves_just_one_port(ports: int, fine: bool) -> None:
    listed = ", ".join(f"{{number: {80 + i}, name: p{i}, protocol: HTTP}}" for i in range(ports))
    more = "resolution: STATIC, endpoints: [{address: 'unix:///run/x'}]"
    assert (
        "unix-needs-one-port" not in codes("ServiceEntry", f"{{hosts: [a.com], ports: [{listed}], {more}}}")
    ) == fine


@pytest.mark.parametrize(("count", "fine"), [(1, True), (2, False)])
def test_round_robin_over_dns_has_one_endpoint(count: int, fine: bool) -> None:
    endpoints = ", ".join(f"{{address: e{i}.com}}" for i in range(count))
    assert (entry(more=f"resolution: DNS_ROUND_ROBIN, endpoints: [{endpoints}]") == []) == fine


@pytest.mark.parametrize(("resolution", "fine"), [("NONE", True), ("STATIC", True), ("DNS", False)])
def test_a_range_of_addresses_needs_a_resolution_that_does_not_look_up(resolution: str, fine: bool) -> None:
    found = entry(more=f"resolution: {resolution}, addresses: [10.0.0.0/8]")
    assert (found == []) == fine


@pytest.mark.parametrize(
    ("text", "fine"), [("1ms", True), ("1500us", False), ("1us", False), ("0s", False), ("2s", True)]
)
def test_durations_are_whole_milliseconds(text: str, fine: bool) -> None:
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], timeout: {text}}}]}}")
        == []
    ) == fine


@pytest.mark.parametrize(("percent", "fine"), [(-1, False), (0, True), (100, True), (101, False)])
def test_percentages(percent: int, fine: bool) -> None:
    fault = f"fault: {{abort: {{httpStatus: 500, percentage: {{value: {percent}}}}}}}"
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], {fault}}}]}}") == []
    ) == fine


@pytest.mark.parametrize(("weights", "fine"), [("0", True), ("0, 0", False), ("0, 1", True)])
def test_the_weights_of_several_destinations_are_not_all_zero(weights: str, fine: bool) -> None:
    route = ", ".join(f"{{destination: {{host: a}}, weight: {weight}}}" for weight in weights.split(", "))
    assert (codes("VirtualService", f"{{hosts: [a], http: [{{route: [{route}]}}]}}") == []) == fine


def test_a_route_may_set_the_authority_once() -> None:
    route = "route: [{destination: {host: a}}], rewrite: {authority: b.com}"
    twice = f"{route}, headers: {{request: {{set: {{':authority': c.com}}}}}}"
    assert codes("VirtualService", f"{{hosts: [a], http: [{{{route}}}]}}") == []
    assert codes("VirtualService", f"{{hosts: [a], http: [{{{twice}}}]}}") != []


def test_a_tunnel_and_the_proxy_protocol_exclude_each_other() -> None:
    tunnel = "tunnel: {protocol: CONNECT, targetHost: a.com, targetPort: 80}"
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{tunnel}}}}}") == []
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{tunnel.replace('CONNECT', 'GET')}}}}}") == [
        "bad-protocol"
    ]
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{tunnel}, proxyProtocol: {{version: V1}}}}}}") == [
        "exclusive-fields"
    ]


@pytest.mark.parametrize(("length", "fine"), [(253, True), (254, False)])
def test_a_name_has_at_most_253_characters(length: int, fine: bool) -> None:
    plain = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a" * length}}
    assert (decode_document(plain).problems == ()) == fine


@pytest.mark.parametrize(("gateways", "fine"), [("[front]", True), ("[mesh]", False)])
def test_claims_of_a_token_are_matched_at_gateways(gateways: str, fine: bool) -> None:
    match = "match: [{headers: {'@request.auth.claims.group': {exact: admin}}}]"
    route = f"{{hosts: [a.com], gateways: {gateways}, http: [{{{match}, route: [{{destination: {{host: a}}}}]}}]}}"
    assert (codes("VirtualService", route) == []) == fine


@pytest.mark.parametrize(("status", "fine"), [(199, False), (200, True), (599, True), (600, False)])
def test_the_first_and_last_status_of_an_abort(status: int, fine: bool) -> None:
    fault = f"fault: {{abort: {{httpStatus: {status}, percentage: {{value: 1}}}}}}"
    assert (
        codes("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], {fault}}}]}}") == []
    ) == fine


@pytest.mark.parametrize(("count", "fine"), [(1024, True), (1025, False)])
def test_a_list_of_a_rule_has_at_most_1024_values(count: int, fine: bool) -> None:
    paths = ", ".join(f"/{number}" for number in range(count))
    found = codes(
        "AuthorizationPolicy", f"{{rules: [{{to: [{{operation: {{paths: [{paths}]}}}}]}}]}}", "security.istio.io/v1"
    )
    assert found == ([] if fine else ["too-many"])


@pytest.mark.parametrize(
    ("letter", "length", "fine"), [("a", 65536, True), ("a", 65537, False), ("é", 32768, True), ("é", 32769, False)]
)
def test_a_script_has_at_most_65536_bytes(letter: str, length: int, fine: bool) -> None:
    found = codes("TrafficExtension", f"{{lua: {{inlineCode: '{letter * length}'}}}}", "extensions.istio.io/v1alpha1")
    assert found == ([] if fine else ["too-long"])


@pytest.mark.parametrize(
    "said", ["tracing: [{}]", "metrics: [{providers: [{name: a}]}]", "accessLogging: [{disabled: true}]"]
)
def test_a_telemetry_may_say_one_thing_alone(said: str) -> None:
    assert codes("Telemetry", f"{{{said}}}", "telemetry.istio.io/v1") == []


def test_switching_spans_off_needs_nothing_more() -> None:
    assert codes("Telemetry", "{tracing: [{disableSpanReporting: true}]}", "telemetry.istio.io/v1") == []


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
def test_only_a_failover_needs_outlier_detection(policy: str, expected: list[str]) -> None:
    assert codes("DestinationRule", f"{{host: a, trafficPolicy: {{{policy}}}}}") == expected


@pytest.mark.parametrize(("port", "expected"), [("HTTP", []), ("TCP", ["no-effect"])])
def test_limits_of_http_are_for_ports_of_http(port: str, expected: list[str]) -> None:
    limits = "connectionPool: {tcp: {maxConnections: 1}"
    listener = f"port: {{number: 1, protocol: {port}, name: p}}, defaultEndpoint: '127.0.0.1:1'"
    assert codes("Sidecar", f"{{ingress: [{{{listener}, {limits}, http: {{http2MaxRequests: 1}}}}}}]}}") == expected
    assert codes("Sidecar", f"{{ingress: [{{{listener}, {limits}}}}}]}}") == []


@pytest.mark.parametrize(
    ("earlier", "later", "told"),
    [
        ("uri: {prefix: /a}", "uri: {prefix: /a/b}", True),
        ("uri: {prefix: /a/b}", "uri: {prefix: /a}", False),
        ("uri: {prefix: /a}", "uri: {prefix: /b}", False),
        ("uri: {prefix: /a}, ignoreUriCase: true", "uri: {prefix: /a/b}", False),
        ("uri: {prefix: /a}, method: {exact: GET}", "uri: {prefix: /a/b}", False),
        ("uri: {prefix: /a}", "uri: {prefix: /a/b}, method: {exact: GET}", True),
    ],
)
def test_a_longer_prefix_behind_a_shorter_one_is_told_of(earlier: str, later: str, told: bool) -> None:
    routes = ", ".join(f"{{match: [{{{match}}}], route: [{{destination: {{host: a}}}}]}}" for match in (earlier, later))
    assert codes("VirtualService", f"{{hosts: [a], http: [{routes}]}}") == (["unreachable-match"] if told else [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", []), ("%REQ(x)%", []), ("50%%", []), ("50%", ["bad-header-value"]), ("a %REQ(x)% b%", ["bad-header-value"])],
)
def test_a_percent_sign_in_a_header_is_doubled_or_part_of_a_variable(value: str, expected: list[str]) -> None:
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
def test_a_list_of_revoked_certificates_may_be_added_to_the_certificates_of_the_mesh(
    tls: str, expected: list[str]
) -> None:
    server = f"port: {{number: 443, name: tls, protocol: TLS}}, hosts: [a.com], tls: {{{tls}}}"
    assert codes("Gateway", f"{{selector: {{a: b}}, servers: [{{{server}}}]}}") == expected
