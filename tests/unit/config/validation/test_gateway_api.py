"""Messages for objects of the Gateway API that API servers reject by their schema."""

from __future__ import annotations

import pytest
import yaml

from pilot.ingest.decode import decode_document

PORT = "required for a Service: set it to the number of a port of the Service"


def problems_of(kind: str, spec: str, version: str = "v1") -> list[tuple[str, str]]:
    """Return the severity and path of each problem, with the message of errors about ports."""
    plain = {
        "apiVersion": f"gateway.networking.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": yaml.safe_load(spec),
    }
    return [(f"{p.severity} {p.path}", p.message) for p in decode_document(plain).problems]


def places(kind: str, spec: str, version: str = "v1") -> list[str]:
    return [place for place, _ in problems_of(kind, spec, version)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{}", ["error spec.from", "error spec.to"]),
        (
            "{from: [{}], to: [{}]}",
            [
                *("error spec.from[0].group", "error spec.from[0].kind", "error spec.from[0].namespace"),
                *("error spec.to[0].group", "error spec.to[0].kind"),
            ],
        ),
        (
            "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: web}], to: [{group: '', kind: Service}]}",
            [],
        ),
    ],
)
def test_reference_grant_names_both_ends(spec: str, expected: list[str]) -> None:
    assert places("ReferenceGrant", spec, "v1beta1") == expected


@pytest.mark.parametrize("kind", ["TCPRoute", "TLSRoute", "UDPRoute"])
def test_l4_route_needs_rules(kind: str) -> None:
    version = "v1alpha2" if kind == "UDPRoute" else "v1"
    assert places(kind, "{hostnames: [a.com]}", version) == ["error spec.rules"]


def test_tls_route_without_hostnames_takes_effect() -> None:
    spec = "{rules: [{backendRefs: [{name: tea, port: 443}]}]}"
    assert places("TLSRoute", spec, "v1alpha2") == ["warning spec.hostnames"]


@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"])
def test_backend_service_needs_a_port(kind: str) -> None:
    spec = "{hostnames: [a.com], rules: [{backendRefs: [{name: tea, port: 80}, {name: tea}]}]}"
    assert problems_of(kind, spec) == [("error spec.rules[0].backendRefs[1].port", PORT)]


@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
def test_mirror_needs_a_port(kind: str) -> None:
    mirror = "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: tea}}}]"
    spec = f"{{rules: [{{{mirror}, backendRefs: [{{name: tea, port: 80, {mirror}}}]}}]}}"
    assert problems_of(kind, spec) == [
        ("error spec.rules[0].backendRefs[0].filters[0].requestMirror.backendRef.port", PORT),
        ("error spec.rules[0].filters[0].requestMirror.backendRef.port", PORT),
    ]


def test_other_kinds_of_backends_need_no_port() -> None:
    pool = "{group: inference.networking.k8s.io, kind: InferencePool, name: llm}"
    assert places("HTTPRoute", f"{{rules: [{{backendRefs: [{pool}]}}]}}") == []


@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"])
def test_references_need_names(kind: str) -> None:
    spec = "{parentRefs: [{namespace: web}], hostnames: [a.com], rules: [{backendRefs: [{port: 80}]}]}"
    assert problems_of(kind, spec) == [
        ("error spec.parentRefs[0].name", "required: set it to the name of a Gateway"),
        ("error spec.rules[0].backendRefs[0].name", "required: set it to the name of a Service"),
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{}", ["error spec.gatewayClassName", "warning spec.listeners"]),
        (
            "{gatewayClassName: istio, listeners: [{}, {name: a, port: 70000, protocol: HTP}]}",
            [
                *("error spec.listeners[0].name", "error spec.listeners[0].protocol"),
                *("warning spec.listeners[1].protocol", "error spec.listeners[0].port", "error spec.listeners[1].port"),
            ],
        ),
        (
            "{gatewayClassName: istio, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {mode: Passthrough}}]}",
            ["warning spec.listeners[0].tls.mode"],
        ),
        (
            "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP}, {name: a, port: 81, protocol: HTTP}]}",
            ["error spec.listeners[0].name", "error spec.listeners[1].name"],
        ),
    ],
)
def test_gateway_needs_a_class_and_listeners(spec: str, expected: list[str]) -> None:
    assert places("Gateway", spec) == expected


def test_listener_set_names_its_gateway() -> None:
    spec = "{listeners: [{name: a, protocol: HTTP}]}"
    assert problems_of("ListenerSet", spec) == [
        ("error spec.parentRef.name", "required: set it to the name of a Gateway")
    ]


def test_protocol_is_suggested() -> None:
    spec = "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: htps}]}"
    message = "'htps' is not supported, so the listener has no effect; did you mean HTTPS?"
    assert problems_of("Gateway", spec) == [("warning spec.listeners[0].protocol", message)]


HEADERS = "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{value: x}]}}"


@pytest.mark.parametrize(
    ("kind", "rule", "place"),
    [
        ("HTTPRoute", "{matches: [{headers: [{name: a, value: x}, {value: x}]}]}", "matches[0].headers[1].name"),
        ("HTTPRoute", "{matches: [{queryParams: [{value: x}]}]}", "matches[0].queryParams[0].name"),
        ("GRPCRoute", "{matches: [{headers: [{value: x}]}]}", "matches[0].headers[0].name"),
        ("HTTPRoute", f"{{filters: [{HEADERS}]}}", "filters[0].requestHeaderModifier.set[0].name"),
        (
            "HTTPRoute",
            f"{{backendRefs: [{{name: b, port: 80, filters: [{HEADERS}]}}]}}",
            "backendRefs[0].filters[0].requestHeaderModifier.set[0].name",
        ),
    ],
)
def test_headers_and_query_parameters_need_names(kind: str, rule: str, place: str) -> None:
    assert places(kind, f"{{rules: [{rule}]}}") == [f"error spec.rules[0].{place}"]


@pytest.mark.parametrize("filter_type", ["URLRewrite", "RequestRedirect"])
@pytest.mark.parametrize(
    ("matches", "is_valid"),
    [
        ("[{path: {type: PathPrefix, value: /a}}]", True),
        ("[{headers: [{name: x, value: y}]}]", True),
        ("[{path: {type: Exact, value: /a}}]", False),
        ("[{path: {type: PathPrefix, value: /a}}, {path: {type: PathPrefix, value: /b}}]", False),
        ("[]", False),
    ],
)
def test_replaced_prefix_needs_one_match_of_a_prefix(filter_type: str, matches: str, is_valid: bool) -> None:
    field = filter_type[0].lower() + filter_type[1:] if filter_type == "RequestRedirect" else "urlRewrite"
    filters = f"[{{type: {filter_type}, {field}: {{path: {{type: ReplacePrefixMatch, replacePrefixMatch: /}}}}}}]"
    rule = f"{{matches: {matches}, filters: {filters}}}"
    expected = [] if is_valid else [f"warning spec.rules[0].filters[0].{field}.path.type"]
    assert places("HTTPRoute", f"{{rules: [{rule}]}}") == expected
    backend = f"{{matches: {matches}, backendRefs: [{{name: b, port: 80, filters: {filters}}}]}}"
    expected = [] if is_valid else [f"warning spec.rules[0].backendRefs[0].filters[0].{field}.path.type"]
    assert places("HTTPRoute", f"{{rules: [{backend}]}}") == expected


def test_message_about_a_replaced_prefix_names_the_remedy() -> None:
    path = "{type: ReplacePrefixMatch, replacePrefixMatch: /}"
    rule = f"{{matches: [{{path: {{type: Exact, value: /a}}}}], filters: [{{type: URLRewrite, urlRewrite: {{path: {path}}}}}]}}"
    assert problems_of("HTTPRoute", f"{{rules: [{rule}]}}")[0][1] == (
        "API servers require exactly one match, of the type PathPrefix, for ReplacePrefixMatch, but its match is Exact; "
        "use path.type: PathPrefix, or ReplaceFullPath"
    )


def test_lists_are_as_long_as_the_schemas_allow() -> None:
    """Routes are attached to each listener of each parent, so the cost is a product."""
    listeners = [
        {"name": f"l{number}", "port": 80, "protocol": "HTTP", "hostname": f"{number}.a"} for number in range(65)
    ]
    parents = [{"name": f"g{number}"} for number in range(33)]
    gateway = {"gatewayClassName": "istio", "listeners": listeners}
    assert places("Gateway", yaml.safe_dump(gateway)) == ["error spec.listeners"]
    assert places("Gateway", yaml.safe_dump({**gateway, "listeners": listeners[:64]})) == []
    assert places("HTTPRoute", yaml.safe_dump({"parentRefs": parents})) == ["error spec.parentRefs"]
    assert places("HTTPRoute", yaml.safe_dump({"parentRefs": parents[:32]})) == []


def test_grpc_method_as_text_is_split() -> None:
    ((place, text),) = problems_of("GRPCRoute", "{rules: [{matches: [{method: hello.Greeter/SayHello}]}]}")
    assert place == "error spec.rules[0].matches[0].method"
    assert text.endswith("write {service: hello.Greeter, method: SayHello}")
