"""Tracing, statistics and access logs of Telemetry resources in listeners."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from msgspec.structs import replace

from pilot.envoy.tracing.collectors import join_url
from pilot.envoy.tracing.request_tracing import RequestTracing, build_request_tracing
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.facets import SpanTagsFacet
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.model.telemetry_features import TELEMETRY_REQUIREMENTS, unsupported_telemetry
from testing.mesh.listeners import WEB, WEB_POD, chains, http, http_filters, last_filter, listeners, service
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy

SHOP = service("web", "[{name: http, port: 80}, {name: tcp, port: 81}]")
COLLECTOR = service("obs", "[{name: http, port: 9411}, {name: grpc, port: 4317}]", "10.96.0.9", "obs")
HTTP_COLLECTOR, GRPC_COLLECTOR = (
    "service: obs.obs.svc.cluster.local, port: 9411",
    "service: obs/obs.obs.svc.cluster.local, port: 4317",
)
HTTP_URI = {"cluster": "outbound|9411||obs.obs.svc.cluster.local", "timeout": "5s"}


def telemetry(spec: str) -> Plain:
    return make("Telemetry", "t", f"{{{spec}}}")


def tracing(provider: str, fields: str = "", by: Proxy = WEB, side: str = "0.0.0.0_80", *more: Plain) -> dict[str, Any]:
    """Return the tracing settings of a listener with that provider, or {} if there are none."""
    mesh = f"extensionProviders: [{{name: p, {provider}}}]"
    spec = telemetry(f"tracing: [{{providers: [{{name: p}}]{', ' + fields if fields else ''}}}]")
    config: dict[str, Any] = http(listeners(SHOP, COLLECTOR, WEB_POD, spec, *more, proxy=by, mesh=mesh)[side]).get(
        "tracing", {}
    )
    return config


def tracer(provider: str, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = tracing(provider, **more)["provider"]["typedConfig"]
    return config


# -- tracers ---------------------------------------------------------------------------------------------------------------


def test_zipkin_collector_service_and_cluster_for_old_proxies() -> None:
    provider = f"zipkin: {{{HTTP_COLLECTOR}, path: /x, timeout: 2s, traceContextOption: USE_B3_WITH_W3C_PROPAGATION, enable64bitTraceId: true}}"
    service_tracer = tracer(provider)
    assert service_tracer["collectorService"]["httpUri"] == {
        **HTTP_URI,
        "uri": "http://obs.obs.svc.cluster.local/x",
        "timeout": "2s",
    }
    assert (service_tracer["traceContextOption"], service_tracer.get("traceId128bit", False)) == (
        "USE_B3_WITH_W3C_PROPAGATION",
        False,
    )
    for client in (replace(WEB, version="1.27.3"), replace(WEB, version="", envoy=(1, 34))):
        config = tracer(provider, by=client)
        assert (config["collectorCluster"], config["collectorEndpoint"]) == (HTTP_URI["cluster"], "/x")
        assert "collectorService" not in config
        assert "traceContextOption" not in config


def test_dynatrace_sampler_receives_all_requests() -> None:
    provider = f"opentelemetry: {{{HTTP_COLLECTOR}, http: {{path: /otlp}}, dynatraceSampler: {{tenant: t, clusterId: 7}}, resourceDetectors: {{dynatrace: {{}}}}}}"
    result = tracing(provider, "randomSamplingPercentage: 3")
    assert result["randomSampling"] == {"value": 100.0}
    config = result["provider"]["typedConfig"]
    assert config["httpService"]["httpUri"] == {**HTTP_URI, "uri": "obs.obs.svc.cluster.local/otlp"}
    sampler = config["sampler"]["typedConfig"]
    assert (sampler["tenant"], sampler["clusterId"]) == ("t", 7)
    assert sampler["httpService"]["httpUri"]["uri"] == "obs.obs.svc.cluster.local/api/v2/samplingConfiguration"
    assert [d["name"].rpartition(".")[2] for d in config["resourceDetectors"]] == ["dynatrace"]


def test_otel_semantic_conventions_add_the_environment_detector() -> None:
    provider = f"opentelemetry: {{{GRPC_COLLECTOR}, serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS}}"
    config = tracer(provider, by=proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, WORKLOAD_NAME="web-v1"))
    assert config["serviceName"] == "web-v1"
    assert [d["name"].rpartition(".")[2] for d in config["resourceDetectors"]] == ["environment"]
    client = proxy(
        "sidecar",
        "web-0",
        "a",
        "10.1.0.1",
        {"app": "web"},
        ANNOTATIONS={"resource.opentelemetry.io/service.name": "shop"},
    )
    assert tracer(provider, by=client)["serviceName"] == "shop"


def test_node_cluster_is_the_service_name() -> None:
    assert (
        tracer(f"opentelemetry: {{{GRPC_COLLECTOR}}}", by=replace(WEB, node_cluster="web.a"))["serviceName"] == "web.a"
    )
    assert tracer(f"datadog: {{{HTTP_COLLECTOR}}}", by=replace(WEB, node_cluster="web.a"))["serviceName"] == "web.a"


def test_initial_metadata_from_the_control_plane_environment() -> None:
    world = World(
        f"extensionProviders: [{{name: p, opentelemetry: {{{GRPC_COLLECTOR}, grpc: {{timeout: 3s, initialMetadata: [{{name: t, envName: T}}]}}}}}}]"
    )
    world.mesh.environment["T"] = "secret"
    world.apply_objects(SHOP, COLLECTOR, WEB_POD, telemetry("tracing: [{providers: [{name: p}]}]"))
    assert {name for name, r in world.resources(world.connect(WEB))[LISTENER].items() if b"secret" in r.any} >= {
        "virtualInbound",
        "0.0.0.0_80",
    }


@pytest.mark.parametrize("provider", [f"zipkin: {{{HTTP_COLLECTOR}}}", f"datadog: {{{HTTP_COLLECTOR}}}"])
def test_hidden_collector_disables_tracing(provider: str) -> None:
    hiding_sidecar = make("Sidecar", "s", "{egress: [{hosts: ['./*']}]}")
    assert tracing(provider, "", WEB, "0.0.0.0_80", hiding_sidecar) == {}
    assert tracing(provider, "", WEB, "virtualInbound", hiding_sidecar) == {}
    importing_sidecar = make("Sidecar", "s", "{egress: [{hosts: ['./*', 'obs/*']}]}")
    assert "provider" in tracing(provider, "", WEB, "virtualInbound", importing_sidecar)


def test_build_without_tracer_has_no_tracing() -> None:
    assert tracing(f"zipkin: {{{HTTP_COLLECTOR}}}", by=replace(WEB, extensions=frozenset(("x",)))) == {}


def test_formatter_tags_need_proxy_support() -> None:
    tags = (
        "enableIstioTags: false, customTags: {a: {formatter: {value: '%PROTOCOL%'}}, b: {literal: {value: c}}, k: {}}"
    )
    assert [t["tag"] for t in tracing(f"opentelemetry: {{{GRPC_COLLECTOR}}}", tags)["customTags"]] == ["a", "b"]
    assert [
        t["tag"]
        for t in tracing(f"opentelemetry: {{{GRPC_COLLECTOR}}}", tags, replace(WEB, envoy=(1, 36)))["customTags"]
    ] == ["b"]


def test_no_context_propagation_is_an_unknown_field() -> None:
    message = build_request_tracing(RequestTracing(propagates_context=False), SpanTagsFacet())
    assert bytes((13 << 3, 1)) in message.SerializeToString()
    assert hcm_pb2.HttpConnectionManager.FromString(message.SerializeToString()) == message


@pytest.mark.parametrize(
    ("path", "url"),
    [("/v1/traces", "h/v1/traces"), ("v1", "h/v1"), ("", "h"), ("//a/./b/../c/", "h/a/c/"), ("/a?b c", "h/a%3Fb%20c")],
)
def test_collector_urls(path: str, url: str) -> None:
    assert join_url("h", path) == url


# -- statistics ------------------------------------------------------------------------------------------------------------


def stats(by: Proxy = WEB) -> dict[str, list[str]]:
    result = listeners(SHOP, WEB_POD, telemetry("metrics: [{providers: [{name: prometheus}]}]"), proxy=by)
    return {
        "http": http_filters(result["0.0.0.0_80"]),
        "tcp": [f["name"] for f in chains(result["10.96.0.1_81"])[0]["filters"]],
        "inbound": [f["name"] for f in chains(result["virtualInbound"])[0]["filters"]],
    }


def test_stats_filter_on_all_listeners() -> None:
    assert all("istio.stats" in names for names in stats().values())


def test_stock_envoy_has_no_stats_filter() -> None:
    assert not any(
        "istio.stats" in names
        for names in stats(replace(WEB, extensions=frozenset(("envoy.filters.http.router",)))).values()
    )


# -- access logs -----------------------------------------------------------------------------------------------------------


def test_access_log_with_unsupported_filter_is_omitted() -> None:
    spec = telemetry("accessLogging: [{providers: [{name: envoy}], filter: {expression: 'response.code > 400'}}]")
    (log,) = last_filter(chains(listeners(SHOP, WEB_POD, spec)["10.96.0.1_81"])[0])["accessLog"]
    assert log["filter"]["extensionFilter"]["typedConfig"]["expression"] == "response.code > 400"
    client = replace(WEB, extensions=frozenset(("envoy.access_loggers.file",)))
    assert "accessLog" not in last_filter(chains(listeners(SHOP, WEB_POD, spec, proxy=client)["10.96.0.1_81"])[0])


def test_mesh_access_log_applies_if_no_provider_is_reachable() -> None:
    mesh = f"{{accessLogFile: /mesh, extensionProviders: [{{name: als, envoyTcpAls: {{{GRPC_COLLECTOR}}}}}]}}"
    spec = telemetry("accessLogging: [{providers: [{name: als}]}]")
    (log,) = last_filter(chains(listeners(SHOP, WEB_POD, spec, mesh=mesh)["10.96.0.1_81"])[0])["accessLog"]
    assert log["typedConfig"]["path"] == "/mesh"
    (log,) = last_filter(chains(listeners(SHOP, WEB_POD, COLLECTOR, spec, mesh=mesh)["10.96.0.1_81"])[0])["accessLog"]
    assert (
        log["typedConfig"]["commonConfig"]["grpcService"]["envoyGrpc"]["clusterName"]
        == "outbound|4317||obs.obs.svc.cluster.local"
    )


# -- builds ----------------------------------------------------------------------------------------------------------------

EXTENSIONS = frozenset(name for need in TELEMETRY_REQUIREMENTS.values() for name in need.extensions)


@pytest.mark.parametrize(
    ("by", "missing"),
    [
        (WEB, set()),
        (replace(WEB, version="", envoy=None), set()),
        (replace(WEB, version="unknown"), set()),
        (replace(WEB, version="1.29-alpha"), {"no_context_propagation"}),
        (
            replace(WEB, version="1.28.0"),
            {"no_context_propagation", "collector_service of Zipkin", "value of custom tags"},
        ),
        (replace(WEB, envoy=(1, 37)), {"no_context_propagation"}),
        (replace(WEB, envoy=(1, 36)), {"no_context_propagation", "value of custom tags"}),
        (
            replace(WEB, envoy=(1, 35)),
            {
                "no_context_propagation",
                "value of custom tags",
                "collector_service of Zipkin",
                "trace_context_option of Zipkin",
            },
        ),
        (
            replace(WEB, version="1.27.9"),
            {
                "no_context_propagation",
                "value of custom tags",
                "collector_service of Zipkin",
                "trace_context_option of Zipkin",
            },
        ),
        (replace(WEB, version="1.30", envoy=(1, 38)), set()),
        (
            replace(WEB, extensions=frozenset()),
            {name for name, need in TELEMETRY_REQUIREMENTS.items() if need.extensions},
        ),
        (replace(WEB, extensions=EXTENSIONS - {"stats.PluginConfig", "istio.stats"}), {"istio.stats"}),
    ],
)
def test_unsupported_telemetry_by_build(by: Proxy, missing: set[str]) -> None:
    assert unsupported_telemetry(by) == missing
