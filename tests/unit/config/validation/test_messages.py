"""Messages for values just outside of the valid range."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config, decode_mesh_networks


def messages_for(kind: str, spec: str, api: str = "networking.istio.io/v1") -> list[str]:
    plain: dict[str, Any] = {"apiVersion": api, "kind": kind, "metadata": {"name": "a", "namespace": "shop"}}
    plain |= {"spec": yaml.safe_load(spec)} if "istio.io" in api else yaml.safe_load(spec)
    return [f"{p.severity} {p.path}: {p.message}" for p in decode_document(plain).problems]


def route(more: str = "", destination: str = "host: a") -> list[str]:
    return messages_for(
        "VirtualService", f"{{hosts: [a], http: [{{route: [{{destination: {{{destination}}}}}]{more}}}]}}"
    )


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
def test_old_tls_versions_need_cipher_suites(suites: str, expected: list[str]) -> None:
    for version, messages in (("TLSV1_0", expected), ("TLSV1_1", expected), ("TLSV1_2", [])):
        tls = f"{{mode: SIMPLE, credentialName: c, minProtocolVersion: {version}{suites}}}"
        server = f"{{port: {{number: 443, name: tls, protocol: TLS}}, hosts: [a.com], tls: {tls}}}"
        assert messages_for("Gateway", f"{{selector: {{a: b}}, servers: [{server}]}}") == messages


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
def test_config_map_credential_is_in_the_object_namespace(name: str, expected: list[str]) -> None:
    messages = messages_for(
        "DestinationRule", f"{{host: a, trafficPolicy: {{tls: {{mode: SIMPLE, credentialName: '{name}'}}}}}}"
    )
    assert messages == [f"error spec.trafficPolicy.tls.credentialName: {message}" for message in expected]


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
def test_destination_names(destination: str, expected: list[str]) -> None:
    assert route(destination=destination) == expected


@pytest.mark.parametrize(("last", "valid"), [(1, True), (2, False)])
def test_sum_of_weights(last: int, valid: bool) -> None:
    weights = ", ".join(
        f"{{destination: {{host: a{i}}}, weight: {weight}}}" for i, weight in enumerate((2**31 - 1, 2**31 - 1, last))
    )
    assert messages_for("VirtualService", f"{{hosts: [a], http: [{{route: [{weights}]}}]}}") == (
        [] if valid else ["error spec.http[0].route: the weights add up to more than 4294967295"]
    )


def test_request_host_is_set_once() -> None:
    messages = ["error spec.http[0].headers.request: the host of the request is set more than once"]
    header, rewrite = "headers: {request: {set: {Host: b.com}}}", "rewrite: {authority: b.com}"
    assert route(f", {header}") == route(f", {rewrite}") == route(f", {header}, rewrite: {{uri: /a}}") == []
    assert (
        route(f", {header}, {rewrite}")
        == route(", headers: {request: {set: {Host: b.com}, add: {':authority': c.com}}}")
        == messages
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
def test_match_and_rewrite_fields(more: str, expected: list[str]) -> None:
    assert route(f", {more}") == [f"error spec.http[0].{line}" for line in expected]


def test_rewrite_regex() -> None:
    (message,) = route(", rewrite: {uriRegexRewrite: {match: '(', rewrite: /b}}")
    assert message.startswith("error spec.http[0].rewrite.uriRegexRewrite.match: ")


@pytest.mark.parametrize(
    ("size", "valid"), [(0, False), (1, False), (2, True), (5_000_011, False), (4_999_999, True), (65_536, False)]
)
def test_maglev_table_size_is_prime(size: int, valid: bool) -> None:
    hash_settings = f"consistentHash: {{useSourceIp: true, maglev: {{tableSize: {size}}}}}"
    messages = messages_for("DestinationRule", f"{{host: a, trafficPolicy: {{loadBalancer: {{{hash_settings}}}}}}}")
    place = "error spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize"
    assert messages == ([] if valid else [f"{place}: {size} is not a prime number below 5000011"])


@pytest.mark.parametrize(("length", "valid"), [(256, True), (257, False)])
def test_proxy_version_match_length(length: int, valid: bool) -> None:
    match = f"{{proxy: {{proxyVersion: {'v' * length}}}}}"
    patch = f"{{applyTo: CLUSTER, match: {match}, patch: {{operation: REMOVE}}}}"
    expected = (
        "warning spec.configPatches[0].match.proxy.proxyVersion: longer than 256 characters, so it matches no proxy"
    )
    assert messages_for("EnvoyFilter", f"{{configPatches: [{patch}]}}", "networking.istio.io/v1alpha3") == (
        [] if valid else [expected]
    )


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
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
def test_overlapping_tracing_modes_are_reported(first: str, second: str, overlap: bool) -> None:
    entries = ", ".join(
        f"{{randomSamplingPercentage: 1{f', match: {{mode: {mode}}}' if mode else ''}}}" for mode in (first, second)
    )
    expected = ["warning spec.tracing[0]: a later entry for the same mode overrides this one"] if overlap else []
    assert messages_for("Telemetry", f"{{tracing: [{entries}]}}", "telemetry.istio.io/v1") == expected


@pytest.mark.parametrize(
    ("block", "valid"),
    [("10.0.0.0/32", True), ("10.0.0.0/33", False), ("fd00::/128", True), ("fd00::/129", False), ("a/8", False)],
)
def test_cidr_prefix_length(block: str, valid: bool) -> None:
    messages = messages_for(
        "ServiceEntry",
        f"{{hosts: [a.com], addresses: ['{block}'], ports: [{{number: 80, name: tcp, protocol: TCP}}], resolution: NONE}}",
    )
    assert messages == ([] if valid else [f"error spec.addresses[0]: '{block}' is not a CIDR range"])


@pytest.mark.parametrize(("length", "valid"), [(107, True), (108, False)])
def test_unix_socket_path_length(length: int, valid: bool) -> None:
    address = f"unix:///{'a' * (length - 1)}"
    spec = f"{{hosts: [a.com], ports: [{{number: 80, name: tcp, protocol: TCP}}], resolution: STATIC, endpoints: [{{address: '{address}'}}]}}"
    assert messages_for("ServiceEntry", spec) == (
        [] if valid else ["error spec.endpoints[0].address: must be at most 107 bytes"]
    )


def test_endpoint_slice_address_type() -> None:
    no_service = (
        "warning metadata.labels: without the label kubernetes.io/service-name, the endpoints belong to no Service: "
        "set it to its name"
    )
    expected = [no_service, "error addressType: 'IPv5': expected IPv4, IPv6 or FQDN"]
    assert (
        messages_for("EndpointSlice", "{addressType: IPv5, endpoints: [{addresses: [x]}]}", "discovery.k8s.io/v1")
        == expected
    )
    assert messages_for(
        "EndpointSlice", "{addressType: FQDN, endpoints: [{addresses: [x]}]}", "discovery.k8s.io/v1"
    ) == [no_service]
    invalid_address = [no_service, "error endpoints[0].addresses[0]: 'x' is not an IP address"]
    assert (
        messages_for("EndpointSlice", "{addressType: IPv4, endpoints: [{addresses: [x]}]}", "discovery.k8s.io/v1")
        == invalid_address
    )


# -- mesh config -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("port", "valid"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_statsd_address_port(port: int, valid: bool) -> None:
    _, problems = decode_mesh_config([yaml.safe_load(f"{{defaultConfig: {{statsdUdpAddress: 'a.com:{port}'}}}}")])
    expected = [] if valid else [("defaultConfig.statsdUdpAddress", f"'a.com:{port}': expected host:port")]
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
def test_connection_limit_minimums(field: str, least: int) -> None:
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
def test_network_gateway_names(gateway: str, expected: list[tuple[str, str]]) -> None:
    _, problems = decode_mesh_networks(
        yaml.safe_load(f"{{networks: {{n: {{gateways: [{{{gateway}, port: 15443}}]}}}}}}")
    )
    assert [(p.path, p.message) for p in problems] == [
        (f"networks[n].gateways[0].{path}", message) for path, message in expected
    ]


SECURITY = "security.istio.io/v1"


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        (messages_for("VirtualService", "{hosts: [a]}", "istio.io/v1"), "write apiVersion: networking.istio.io/v1"),
        (messages_for("AuthorizationPolicy", "{}"), "write apiVersion: security.istio.io/v1"),
        (route(destination="host: a, port: {name: http}"), "the only field is number"),
        (route(", match: [{uri: {regex: '*.jpg'}}]"), r"write .* for any text: .*\.jpg"),
        (route(", match: [{uri: {prefix: '/api/*'}}]"), "only values with * match; write {prefix: /api/}"),
        (route(", match: [{uri: {exact: api}}]"), "paths begin with /, so no request matches; write {exact: /api}"),
        (route(", headers: {request: {add: [{name: x-a, value: b}]}}"), "got a list: write {x-a: b}"),
        (route(", headers: {request: {add: [{name: x-a, value: 'true'}]}}"), 'got a list: write {x-a: "true"}'),
        (
            messages_for("DestinationRule", "{host: a, trafficPolicy: {connectionPool: {http: {maxConnections: 1}}}}"),
            "it is a field of trafficPolicy.connectionPool.tcp: move it there",
        ),
        (route(", headers: {request: {set: {'x user': a}}}"), "'x user' is not a valid header name"),
        (route(", headers: {request: {set: {':path': a}}}"), "to change the path, use rewrite: {uri: /x}"),
        (messages_for("AuthorizationPolicy", "{action: Deny}", SECURITY), "got 'Deny'; did you mean DENY?"),
        (
            messages_for("AuthorizationPolicy", "{rules: [{source: {principals: [a]}}]}", SECURITY),
            "it is a field of the items of from: indent it below from:, and begin it with -",
        ),
        (messages_for("VirtualService", "{hosts: ['{{ .Values.a }}']}"), "looks like a Helm template: render it first"),
        (
            messages_for("Gateway", "{servers: [{hosts: ['*'], port: {number: 443, name: a, protocol: HTTPS}}]}"),
            "HTTPS requires TLS settings: write tls: {mode: SIMPLE, credentialName: NAME-OF-A-SECRET}",
        ),
        (
            messages_for("Service", "{spec: {selector: {matchLabels: {app: a}}}}", "v1"),
            "expected a label, got a mapping: write the labels without matchLabels",
        ),
    ],
)
def test_fix_of_a_mistake(messages: list[str], end: str) -> None:
    assert any(message.endswith(end) for message in messages), messages


@pytest.mark.parametrize(
    ("block", "end"),
    [("10.0.0.0/33", ": the longest prefix is /32"), ("fd00::/129", ": the longest prefix is /128"), ("a/8", "")],
)
def test_address_range_with_a_prefix_that_is_too_long_names_the_longest_one(block: str, end: str) -> None:
    rules = f"{{rules: [{{from: [{{source: {{ipBlocks: ['{block}']}}}}]}}]}}"
    (message,) = messages_for("AuthorizationPolicy", rules, "security.istio.io/v1")
    assert message.endswith(f"'{block}' is not an IP address or CIDR range{end}")


def test_wildcard_host_that_dns_cannot_resolve_names_the_resolution() -> None:
    ports = "ports: [{number: 80, name: http, protocol: HTTP}]"
    (message,) = messages_for("ServiceEntry", f"{{hosts: ['*.x.com'], {ports}, resolution: DNS}}")
    assert message.endswith(
        "'*.x.com' cannot be resolved with resolution DNS: write full domain names, or resolution: NONE for hosts with a wildcard"
    )


def principals(*values: str) -> list[str]:
    listed = ", ".join(f"'{value}'" for value in values)
    spec = f"{{rules: [{{from: [{{source: {{requestPrincipals: [{listed}]}}}}]}}]}}"
    return messages_for("AuthorizationPolicy", spec, "security.istio.io/v1")


def test_request_principal_without_a_subject_is_reported() -> None:
    path = "warning spec.rules[0].from[0].source.requestPrincipals[0]"
    assert principals("https://issuer.example.com") == [
        f"{path}: 'https://issuer.example.com' matches no request, because a request principal is ISSUER/SUBJECT; "
        "write https://issuer.example.com/*"
    ]
    assert principals("https://issuer.example.com/")[0].endswith("; write https://issuer.example.com/*")
    assert principals("issuer.example.com")[0].endswith("; write issuer.example.com/*")
    assert principals("*", "*/bob", "https://issuer.example.com*", "https://issuer.example.com/bob", "a@b/c") == []
    condition = "{key: request.auth.principal, values: ['https://issuer.example.com']}"
    assert messages_for("AuthorizationPolicy", f"{{rules: [{{when: [{condition}]}}]}}", "security.istio.io/v1") == [
        "warning spec.rules[0].when[0].values[0]: 'https://issuer.example.com' matches no request, because a request "
        "principal is ISSUER/SUBJECT; write https://issuer.example.com/*"
    ]


ONE, OTHER = "{destination: {host: a}, weight: 90}", "{destination: {host: b}}"


@pytest.mark.parametrize("part", ["http: [{", "tcp: [{", "tls: [{match: [{sniHosts: [a]}], "])
def test_destination_without_a_weight_next_to_others_is_reported(part: str) -> None:
    def messages(*destinations: str) -> list[str]:
        return messages_for("VirtualService", f"{{hosts: [a], {part}route: [{', '.join(destinations)}]}}]}}")

    field = part.partition(":")[0]
    assert messages(ONE, OTHER) == [
        f"warning spec.{field}[0].route[1].weight: no weight, so it gets no requests; set weight: 10"
    ]
    assert messages(ONE, "{destination: {host: b}, weight: 0}") == []
    assert messages(OTHER) == []
    assert messages(ONE, ONE, OTHER) == []
    assert messages(ONE, OTHER, OTHER) == [
        f"warning spec.{field}[0].route[{index}].weight: no weight, so it gets no requests; set a weight"
        for index in (1, 2)
    ]


def test_unreachable_route_says_what_to_move() -> None:
    rule, match = "route: [{destination: {host: a}}]", "match: [{uri: {prefix: /a}}], "
    assert messages_for(
        "VirtualService", f"{{hosts: [a], http: [{{{match}{rule}}}, {{{rule}}}, {{{match}{rule}}}]}}"
    ) == ["warning spec.http[2]: never reached: http[1] matches everything; move http[2] before http[1]"]


@pytest.mark.parametrize("mode", ["ISTIO_MUTUAL", "SIMPLE"])
def test_certificates_that_clients_do_not_use_are_reported(mode: str) -> None:
    files = "clientCertificate: /c.pem, privateKey: /k.pem, caCertificates: /ca.pem"
    messages = messages_for("DestinationRule", f"{{host: a, trafficPolicy: {{tls: {{mode: {mode}, {files}}}}}}}")
    unused = ["clientCertificate", "privateKey", *(["caCertificates"] if mode == "ISTIO_MUTUAL" else [])]
    why = "uses the mesh's certificates" if mode == "ISTIO_MUTUAL" else "sends no client certificate"
    assert messages == [
        f"warning spec.trafficPolicy.tls.{field}: {mode} {why}, so {field} is ignored: write mode: MUTUAL to use it"
        for field in unused
    ]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("paths: [/api/.*]", "paths[0]: '/api/.*' {RE}; write /api/*"),
        ("paths: [/x, '^/x$']", "paths[1]: '^/x$' {RE}; write /x"),
        ("paths: ['^/x']", "paths[0]: '^/x' {RE}; write /x*"),
        ("notPaths: ['/users/[0-9]+/x']", "notPaths[0]: '/users/[0-9]+/x' {RE}; write /users/{*}/x"),
        ("paths: ['/a/.+/b/.*']", "paths[0]: '/a/.+/b/.*' {RE}; write /a/{*}/b/{**}"),
        ("paths: [/a/*/b]", "paths[0]: '/a/*/b' {TEXT}; write /a/{*}/b"),
        ("paths: [/a*b]", "paths[0]: '/a*b' {TEXT}; write {*} for a segment of a path, and {**} for the rest"),
        ("hosts: [.*.x.com]", "hosts[0]: '.*.x.com' {RE}; write *.x.com"),
        (r"hosts: ['^a\.x\.com$']", r"hosts[0]: '^a\\.x\\.com$' {RE}; write a.x.com"),
        ("hosts: ['(a|b).x.com$']", "hosts[0]: '(a|b).x.com$' {RE}; list the hosts"),
    ],
)
def test_a_regular_expression_in_a_policy_is_text(operation: str, expected: str) -> None:
    spec = f"{{rules: [{{to: [{{operation: {{{operation}}}}}]}}]}}"
    expression = "is matched as text and not as a regular expression, as only * at the start or the end is a wildcard"
    text = "matches only text with a *, because * is a wildcard only at the start or the end"
    message = expected.replace("{RE}", expression).replace("{TEXT}", text)
    assert messages_for("AuthorizationPolicy", spec, "security.istio.io/v1") == [
        f"warning spec.rules[0].to[0].operation.{message}"
    ]


@pytest.mark.parametrize(
    "operation",
    [
        "paths: [/.well-known/*, /a.b, '*.js', /a+b, '/f(1)', '/a/{*}/b/{**}', '*']",
        "hosts: ['*.x.com', 'api.*', '[::1]:80', '*']",
    ],
)
def test_values_with_wildcards_are_valid(operation: str) -> None:
    spec = f"{{rules: [{{to: [{{operation: {{{operation}}}}}]}}]}}"
    assert messages_for("AuthorizationPolicy", spec, "security.istio.io/v1") == []


def test_a_wildcard_in_an_origin_is_literal() -> None:
    origins = "allowOrigins: [{exact: 'https://*.x.com'}, {exact: '*'}, {regex: '.*'}, {prefix: 'https://*'}]"
    message = "* is literal in an origin, so this matches none; write allowOrigins: [{regex: 'https://"
    assert route(f", corsPolicy: {{{origins}}}") == [
        rf"warning spec.http[0].corsPolicy.allowOrigins[0].exact: {message}.*\.x\.com'}}]",
        f"warning spec.http[0].corsPolicy.allowOrigins[3].prefix: {message}.*'}}]",
    ]


def test_a_prefix_without_a_slash_that_is_replaced_with_one() -> None:
    assert route(", match: [{uri: {prefix: /api}}], rewrite: {uri: /}") == [
        "info spec.http[0].match[0].uri.prefix: a request for /api/x is sent as //x, with two slashes; write match: "
        "[{uri: {prefix: /api/}}, {uri: {exact: /api}}]"
    ]
    assert route(", match: [{uri: {prefix: /api/}}, {uri: {prefix: /api}}], rewrite: {uri: /}") == []
    assert route(", match: [{uri: {prefix: /api}}], rewrite: {uri: /v2}") == []
    assert route(", match: [{uri: {exact: /api}}, {uri: {prefix: /}}], rewrite: {uri: /}") == []
