"""Options of HTTP connection managers from mesh and proxy configuration."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2

from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble, serialize_fields
from pilot.envoy.network_filter.http_connection_manager import NAME, HttpOptions, build_http_connection_manager
from pilot.envoy.resource import Resource
from pilot.envoy.tracing.request_tracing import RequestTracing, build_request_tracing
from pilot.envoy.well_known_types import pack
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.facets import SpanTagsFacet
from testing.mesh.listeners import WEB_POD, chains, http, http_filters, last_filter, listeners, service
from testing.mesh.second_decoder import check_same_content
from testing.mesh.world import proxy

SHOP = service("x", "[{name: http, port: 80}]")


def manager(side: str, mesh: str = "", config: Any = None, **environ: str) -> dict[str, Any]:
    """Return the first manager of a side. `config` is the proxy's own configuration."""
    metadata = {"PROXY_CONFIG": config} if config is not None else {}
    client = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, **metadata)
    return http(
        listeners(SHOP, WEB_POD, proxy=client, mesh=mesh, **environ)[
            "virtualInbound" if side == "inbound" else "0.0.0.0_80"
        ]
    )


@pytest.mark.parametrize(
    ("config", "side", "expected"),
    [
        ({"server": {"disabled": True}}, "inbound", {"serverName": None, "serverHeaderTransformation": "PASS_THROUGH"}),
        ({"server": {"value": "x"}}, "outbound", {"serverName": "x", "serverHeaderTransformation": None}),
        ({}, "inbound", {"serverName": "istio-envoy", "forwardClientCertDetails": "APPEND_FORWARD"}),
        ({}, "outbound", {"serverName": None, "forwardClientCertDetails": None}),
        ({"requestId": {"disabled": True}}, "outbound", {"generateRequestId": False}),
        ({"forwardedClientCert": "SANITIZE_SET"}, "inbound", {"forwardClientCertDetails": "SANITIZE_SET"}),
        ({"xForwardedPort": {"enabled": True}}, "inbound", {"appendXForwardedPort": True}),
        (
            {"setCurrentClientCertDetails": {"subject": False, "cert": True, "dns": False}},
            "inbound",
            {"setCurrentClientCertDetails": {"subject": False, "cert": True, "uri": True}},
        ),
    ],
)
def test_proxy_headers(config: dict[str, Any], side: str, expected: dict[str, Any]) -> None:
    result = manager(side, config={"proxyHeaders": config})
    assert {name: result.get(name) for name in expected} == expected


def test_header_case_can_be_preserved() -> None:
    result = manager("inbound", config={"proxyHeaders": {"preserveHttp1HeaderCase": True}})
    assert "statefulFormatter" in result["httpProtocolOptions"]["headerKeyFormat"]


@pytest.mark.parametrize(
    ("normalization", "expected"),
    [
        ("NONE", {"normalizePath": False}),
        ("BASE", {"normalizePath": True}),
        ("MERGE_SLASHES", {"normalizePath": True, "mergeSlashes": True}),
        (
            "DECODE_AND_MERGE_SLASHES",
            {"normalizePath": True, "mergeSlashes": True, "pathWithEscapedSlashesAction": "UNESCAPE_AND_FORWARD"},
        ),
    ],
)
def test_path_normalization(normalization: str, expected: dict[str, Any]) -> None:
    result = manager("outbound", f"pathNormalization: {{normalization: {normalization}}}")
    names = ("normalizePath", "mergeSlashes", "pathWithEscapedSlashesAction")
    assert {n: result[n] for n in names if n in result} == {"pathWithEscapedSlashesAction": "KEEP_UNCHANGED"} | expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"httpIdleTimeout": "9s"}, {"commonHttpProtocolOptions": {"idleTimeout": "9s"}}),
        ({"httpStreamIdleTimeout": "9s"}, {"streamIdleTimeout": "9s"}),
        (
            {"httpRequestTimeout": "9s", "httpRequestHeadersTimeout": "8s"},
            {"requestTimeout": "9s", "requestHeadersTimeout": "8s"},
        ),
        ({"httpDrainTimeout": "9s"}, {"drainTimeout": "9s"}),
        ({"httpMaxConcurrentStreams": 7}, {"http2ProtocolOptions": {"maxConcurrentStreams": 7}}),
        ({"httpMaxConcurrentStreams": -1}, {"http2ProtocolOptions": None}),
        (
            {"httpIdleTimeout": "-1s", "httpDrainTimeout": "9s"},
            {"commonHttpProtocolOptions": None, "drainTimeout": "9s"},
        ),
        (
            {"httpHeadersWithUnderscoresAction": "HEADERS_WITH_UNDERSCORES_DROP_HEADER"},
            {"commonHttpProtocolOptions": {"headersWithUnderscoresAction": "DROP_HEADER"}},
        ),
        ({"httpMergeSlashes": True}, {"mergeSlashes": True}),
        ({"httpPathWithEscapedSlashesAction": "REJECT_REQUEST"}, {"pathWithEscapedSlashesAction": "REJECT_REQUEST"}),
        ({"profile": "EDGE"}, {"requestTimeout": None}),
    ],
)
def test_connection_settings(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    result = manager("outbound", config={"connectionSettings": settings})
    assert {name: result.get(name) for name in expected} == expected


def test_proxy_config_overrides_mesh_config_per_section() -> None:
    mesh = "defaultConfig: {proxyHeaders: {server: {value: mesh}}, connectionSettings: {httpIdleTimeout: 5s}}"
    assert manager("inbound", mesh)["serverName"] == "mesh"
    manager_config = manager("inbound", mesh, {})
    assert manager_config["serverName"] == "istio-envoy"
    assert manager_config["commonHttpProtocolOptions"] == {"idleTimeout": "5s"}


@pytest.mark.parametrize(
    ("environ", "added", "removed"),
    [
        ({"PILOT_ENABLE_METADATA_EXCHANGE": "false"}, set(), {"istio.metadata_exchange"}),
        ({"PILOT_ENABLE_ALPN_FILTER": "false"}, set(), {"istio.alpn"}),
        ({"PILOT_ENABLE_PERSISTENT_SESSION_FILTER": "true"}, {"envoy.filters.http.stateful_session"}, set()),
    ],
)
def test_feature_flags_select_filters(environ: dict[str, str], added: set[str], removed: set[str]) -> None:
    default_filters = set(http_filters(listeners(SHOP)["0.0.0.0_80"]))
    assert set(http_filters(listeners(SHOP, **environ)["0.0.0.0_80"])) == (default_filters | added) - removed


def test_grpc_web_filter() -> None:
    listener = listeners(service("x", "[{name: grpc-web-a, port: 80}]"))["0.0.0.0_80"]
    assert "envoy.filters.http.grpc_web" in http_filters(listener)


# -- tracing and access logs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tracing", "sampling"),
    [({}, 1.0), ({"sampling": 50.0}, 50.0), ({"sampling": 0.0}, 1.0), ({"sampling": 200.0}, 1.0)],
)
def test_trace_sampling(tracing: dict[str, Any], sampling: float) -> None:
    assert manager("inbound", config={"tracing": tracing})["tracing"]["randomSampling"]["value"] == sampling


def test_custom_tags() -> None:
    tags = {
        "a": {"literal": {"value": "v"}},
        "b": {"environment": {"name": "E", "defaultValue": "d"}},
        "c": {"header": {"name": "h"}},
    }
    result = manager(
        "inbound", config={"tracing": {"customTags": tags, "enableIstioTags": False, "maxPathTagLength": 9}}
    )["tracing"]
    assert result["customTags"] == [
        {"tag": "a", "literal": {"value": "v"}},
        {"tag": "b", "environment": {"name": "E", "defaultValue": "d"}},
        {"tag": "c", "requestHeader": {"name": "h"}},
    ]
    assert result["maxPathTagLength"] == 9


def log_format(mesh: str) -> dict[str, Any]:
    (log,) = manager("outbound", mesh)["accessLog"]
    format_: dict[str, Any] = log["typedConfig"]["logFormat"]
    return format_


def test_access_log_formats() -> None:
    stdout = "accessLogFile: /dev/stdout"
    assert log_format(stdout)["textFormatSource"]["inlineString"].startswith(
        '[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%'
    )
    custom = log_format(f"{stdout}\naccessLogFormat: '%REQ_WITHOUT_QUERY(X?Y)%'")
    assert custom["textFormatSource"]["inlineString"] == "%REQ_WITHOUT_QUERY(X?Y)%\n"
    assert [f["name"] for f in custom["formatters"]] == ["envoy.formatter.req_without_query"]
    assert log_format(f"{stdout}\naccessLogEncoding: JSON")["jsonFormat"]["duration"] == "%DURATION%"
    assert log_format(f'{stdout}\naccessLogEncoding: JSON\naccessLogFormat: \'{{"a": "%DURATION%"}}\'')[
        "jsonFormat"
    ] == {"a": "%DURATION%"}
    assert "duration" in log_format(f"{stdout}\naccessLogEncoding: JSON\naccessLogFormat: 'no json'")["jsonFormat"]


def test_access_log_placement() -> None:
    result = listeners(SHOP, WEB_POD, mesh="accessLogFile: /dev/stdout\nenableEnvoyAccessLogService: true")
    (file, als) = result["virtualOutbound"]["accessLog"]
    assert file["filter"] == als["filter"] == {"responseFlagFilter": {"flags": ["NR"]}}
    assert "accessLog" not in result["0.0.0.0_80"]
    black_hole, passthrough = chains(result["virtualOutbound"])
    assert "accessLog" not in last_filter(black_hole)
    assert len(last_filter(passthrough)["accessLog"]) == 2
    without_listener_log = listeners(SHOP, mesh="accessLogFile: /dev/stdout\ndisableEnvoyListenerLog: true")
    assert "accessLog" not in without_listener_log["virtualOutbound"]


# -- parts -------------------------------------------------------------------------------------------------------------------


def test_assembled_parts_equal_the_whole() -> None:
    """Compare a listener assembled from serialized parts with one built whole, using two decoders."""
    spans = build_request_tracing(RequestTracing(), SpanTagsFacet(service="x"))
    template = build_http_connection_manager(HttpOptions(side="inbound"), [])
    whole = hcm_pb2.HttpConnectionManager()
    whole.MergeFrom(template)
    whole.MergeFrom(spans)
    chain = listener_components_pb2.FilterChain(name="c", filters=[listener_components_pb2.Filter(name="first")])
    head = listener_pb2.Listener(name="l")
    plain, with_manager = (
        ChainParts(chain.SerializeToString(), manager) for manager in ((), (template.SerializeToString(),))
    )
    parts = ListenerParts("l", head.SerializeToString(), (with_manager,), plain)
    resource = assemble(parts, serialize_fields(spans))
    head.filter_chains.append(chain)
    head.filter_chains[0].filters.append(listener_components_pb2.Filter(name=NAME, typed_config=pack(whole)))
    head.default_filter_chain.CopyFrom(chain)
    listener = listener_pb2.Listener.FromString(any_pb2.Any.FromString(resource.any).value)
    assert listener.filter_chains[0].filters[0] == head.filter_chains[0].filters[0]
    config = listener.filter_chains[0].filters[1].typed_config
    assert hcm_pb2.HttpConnectionManager.FromString(config.value) == whole
    assert listener.default_filter_chain == chain
    assert Resource.of(LISTENER, listener).name == resource.name
    assert check_same_content(resource.any) > 1
