"""What is said of values that are just wrong, word for word, and that nothing is said of those beside them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config, decode_mesh_networks


def told(kind: str, spec: str, api: str = "networking.istio.io/v1") -> list[str]:
    plain: dict[str, Any] = {"apiVersion": api, "kind": kind, "metadata": {"name": "a", "namespace": "shop"}}
    plain |= {"spec": yaml.safe_load(spec)} if "istio.io" in api else yaml.safe_load(spec)
    return [f"{p.severity} {p.path}: {p.message}" for p in decode_document(plain).problems]


def route(more: str = "", destination: str = "host: a") -> list[str]:
    return told("VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{{destination}}}}}]{more}}}]}}")


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        (
            "",
            [
                "warning spec.servers[0].tls.minProtocolVersion: no default cipher suite supports TLS below 1.2; set cipherSuites"
            ],
        ),
        (", cipherSuites: [AES128-SHA]", []),
    ],
)
def test_an_old_tls_needs_cipher_suites(suites: str, expected: list[str]) -> None:
    for version, found in (("TLSV1_0", expected), ("TLSV1_1", expected), ("TLSV1_2", [])):
        tls = f"{{mode: SIMPLE, credentialName: c, minProtocolVersion: {version}{suites}}}"
        server = f"{{port: {{number: 443, name: tls, protocol: TLS}}, hosts: [a.com], tls: {tls}}}"
        assert told("Gateway", f"{{selector: {{a: b}}, servers: [{server}]}}") == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("configmap://roots", []),
        ("configmap://shop/roots", []),
        ("configmap://other/roots", ["the ConfigMap must be in the namespace of the object"]),
        ("configmap://", ["'configmap://' does not name a ConfigMap"]),
        ("configmap://shop/", ["'configmap://shop/' does not name a ConfigMap"]),
    ],
)
def test_a_config_map_with_roots_is_of_the_own_namespace(name: str, expected: list[str]) -> None:
    found = told("DestinationRule", f"{{host: a, trafficPolicy: {{tls: {{mode: SIMPLE, credentialName: '{name}'}}}}}}")
    assert found == [f"error spec.trafficPolicy.tls.credentialName: {message}" for message in expected]


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        (
            "host: a_b",
            ["error spec.http[0].route[0].destination.host: 'a_b' is not a domain name: invalid label 'a_b'"],
        ),
        ("host: '*'", ["error spec.http[0].route[0].destination.host: '*' is not a destination"]),
        (
            "host: a, subset: a.b",
            ["error spec.http[0].route[0].destination.subset: 'a.b': must be 1 to 63 letters, digits and hyphens"],
        ),
        ("host: a, subset: a-b, port: {number: 80}", []),
    ],
)
def test_a_destination_is_named_rightly(destination: str, expected: list[str]) -> None:
    assert route(destination=destination) == expected


@pytest.mark.parametrize(("last", "fine"), [(1, True), (2, False)])
def test_the_weights_of_destinations_sum_up_to_32_bits(last: int, fine: bool) -> None:
    weights = ", ".join(
        f"{{destination: {{host: a{i}}}, weight: {weight}}}" for i, weight in enumerate((2**31 - 1, 2**31 - 1, last))
    )
    assert told("VirtualService", f"{{hosts: [a], http: [{{route: [{weights}]}}]}}") == (
        [] if fine else ["error spec.http[0].route: the weights add up to more than 4294967295"]
    )


def test_the_host_of_a_request_is_set_once() -> None:
    twice = ["error spec.http[0].headers.request: the host of the request is set more than once"]
    one, other = "headers: {request: {set: {Host: b.com}}}", "rewrite: {authority: b.com}"
    assert route(f", {one}") == route(f", {other}") == route(f", {one}, rewrite: {{uri: /a}}") == []
    assert (
        route(f", {one}, {other}")
        == route(", headers: {request: {set: {Host: b.com}, add: {':authority': c.com}}}")
        == twice
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("match: [{gateways: [shop/front]}]", []),
        ("match: [{gateways: [shop/fr_ont]}]", ["match[0].gateways[0]: 'fr_ont' is not a valid Gateway name"]),
        ("match: [{gateways: [sh.op/front]}]", ["match[0].gateways[0]: 'sh.op' is not a valid namespace"]),
        ("match: [{sourceNamespace: a.b}]", ["match[0].sourceNamespace: 'a.b' is not a valid namespace"]),
        ("rewrite: {uriRegexRewrite: {match: /a, rewrite: /b}}", []),
        (
            "rewrite: {uriRegexRewrite: {match: '', rewrite: /b}}",
            ["rewrite.uriRegexRewrite: match and rewrite are required"],
        ),
    ],
)
def test_what_else_a_route_says_is_right(more: str, expected: list[str]) -> None:
    assert route(f", {more}") == [f"error spec.http[0].{line}" for line in expected]


def test_an_expression_of_a_rewrite_is_one() -> None:
    (found,) = route(", rewrite: {uriRegexRewrite: {match: '(', rewrite: /b}}")
    assert found.startswith("error spec.http[0].rewrite.uriRegexRewrite.match: ")


@pytest.mark.parametrize(
    ("size", "fine"), [(0, False), (1, False), (2, True), (5_000_011, False), (4_999_999, True), (65_536, False)]
)
def test_the_table_of_maglev_has_a_prime_size(size: int, fine: bool) -> None:
    hashing = f"consistentHash: {{useSourceIp: true, maglev: {{tableSize: {size}}}}}"
    found = told("DestinationRule", f"{{host: a, trafficPolicy: {{loadBalancer: {{{hashing}}}}}}}")
    place = "error spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize"
    assert found == ([] if fine else [f"{place}: {size} is not a prime number below 5000011"])


@pytest.mark.parametrize(("length", "fine"), [(1024, True), (1025, False)])
def test_a_version_of_a_proxy_that_is_matched_has_at_most_1024_characters(length: int, fine: bool) -> None:
    match = f"{{proxy: {{proxyVersion: {'v' * length}}}}}"
    patch = f"{{applyTo: CLUSTER, match: {match}, patch: {{operation: REMOVE}}}}"
    expected = "warning spec.configPatches[0].match.proxy.proxyVersion: longer than 1024 characters; matches no proxy"
    assert told("EnvoyFilter", f"{{configPatches: [{patch}]}}", "networking.istio.io/v1alpha3") == (
        [] if fine else [expected]
    )


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("", "", True),
        ("CLIENT", "SERVER", False),
        ("CLIENT", "CLIENT", True),
        ("CLIENT", "", True),
        ("", "SERVER", True),
        ("SERVER", "CLIENT_AND_SERVER", True),
        ("CLIENT_AND_SERVER", "CLIENT_AND_SERVER", True),
    ],
)
def test_two_entries_for_spans_of_one_mode_are_told_of(one: str, other: str, overlap: bool) -> None:
    entries = ", ".join(
        f"{{randomSamplingPercentage: 1{f', match: {{mode: {mode}}}' if mode else ''}}}" for mode in (one, other)
    )
    expected = ["warning spec.tracing[0]: a later entry for the same mode overrides this one"] if overlap else []
    assert told("Telemetry", f"{{tracing: [{entries}]}}", "telemetry.istio.io/v1") == expected


@pytest.mark.parametrize(
    ("block", "fine"),
    [("10.0.0.0/32", True), ("10.0.0.0/33", False), ("fd00::/128", True), ("fd00::/129", False), ("a/8", False)],
)
def test_the_length_of_a_block_of_addresses_is_that_of_its_family(block: str, fine: bool) -> None:
    found = told(
        "ServiceEntry",
        f"{{hosts: [a.com], addresses: ['{block}'], ports: [{{number: 80, name: tcp, protocol: TCP}}], resolution: NONE}}",
    )
    assert found == ([] if fine else [f"error spec.addresses[0]: '{block}' is not a CIDR range"])


@pytest.mark.parametrize(("length", "fine"), [(107, True), (108, False)])
def test_the_path_of_a_unix_socket_has_at_most_107_bytes(length: int, fine: bool) -> None:
    address = f"unix:///{'a' * (length - 1)}"
    spec = f"{{hosts: [a.com], ports: [{{number: 80, name: tcp, protocol: TCP}}], resolution: STATIC, endpoints: [{{address: '{address}'}}]}}"
    assert told("ServiceEntry", spec) == ([] if fine else ["error spec.endpoints[0].address: longer than 107 bytes"])


def test_the_type_of_addresses_of_a_slice() -> None:
    expected = ["error addressType: 'IPv5': expected IPv4, IPv6 or FQDN"]
    assert (
        told("EndpointSlice", "{addressType: IPv5, endpoints: [{addresses: [x]}]}", "discovery.k8s.io/v1") == expected
    )
    assert told("EndpointSlice", "{addressType: FQDN, endpoints: [{addresses: [x]}]}", "discovery.k8s.io/v1") == []
    wrong = ["error endpoints[0].addresses[0]: 'x' is not an IP address"]
    assert told("EndpointSlice", "{addressType: IPv4, endpoints: [{addresses: [x]}]}", "discovery.k8s.io/v1") == wrong


# -- of a mesh -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("port", "fine"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_the_port_of_an_address_in_the_mesh_config(port: int, fine: bool) -> None:
    _, problems = decode_mesh_config([yaml.safe_load(f"{{defaultConfig: {{statsdUdpAddress: 'a.com:{port}'}}}}")])
    expected = [] if fine else [("defaultConfig.statsdUdpAddress", f"'a.com:{port}': expected host:port")]
    assert [(p.path, p.message) for p in problems if p.code != "no-effect"] == expected


@pytest.mark.parametrize(
    ("field", "least"),
    [
        ("listenerPerConnectionBufferLimitBytes", 0),
        ("clusterPerConnectionBufferLimitBytes", 0),
        ("httpMaxConcurrentStreams", 1),
        ("http2InitialStreamWindowSize", 65535),
        ("http2InitialConnectionWindowSize", 65535),
        ("listenerConnectionLimit", 1),
        ("globalDownstreamConnectionLimit", 1),
    ],
)
def test_the_least_limits_of_connections(field: str, least: int) -> None:
    for number in (least, least - 1):
        _, problems = decode_mesh_config([{"defaultConfig": {"connectionSettings": {field: number}}}])
        expected = [] if number == least else [f"defaultConfig.connectionSettings.{field}"]
        assert [p.path for p in problems if p.code != "no-effect"] == expected


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        (
            "registryServiceName: a_b",
            [("registryServiceName", "'a_b' is not a domain name: invalid label 'a_b'")],
        ),
        ("address: a_b", [("address", "'a_b' is not a domain name: invalid label 'a_b'")]),
        ("address: 10.0.0.1", []),
        ("registryServiceName: a.b", []),
    ],
)
def test_the_gateway_of_a_network_is_named_rightly(gateway: str, expected: list[tuple[str, str]]) -> None:
    _, problems = decode_mesh_networks(
        yaml.safe_load(f"{{networks: {{n: {{gateways: [{{{gateway}, port: 15443}}]}}}}}}")
    )
    assert [(p.path, p.message) for p in problems] == [
        (f"networks[n].gateways[0].{path}", message) for path, message in expected
    ]
