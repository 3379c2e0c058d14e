"""What Telemetries put into listeners, by the provider, the side and the build of the proxy."""

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
from testing.mesh.listeners import WEB, WEB_POD, chains, http, http_filters, last, listeners, service
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy

SHOP = service("web", "[{name: http, port: 80}, {name: tcp, port: 81}]")
COLLECTOR = service("obs", "[{name: http, port: 9411}, {name: grpc, port: 4317}]", "10.96.0.9", "obs")
AT, GRPC = "service: obs.obs.svc.cluster.local, port: 9411", "service: obs/obs.obs.svc.cluster.local, port: 4317"
HTTP_URI = {"cluster": "outbound|9411||obs.obs.svc.cluster.local", "timeout": "5s"}


def telemetry(spec: str) -> Plain:
    return make("Telemetry", "t", f"{{{spec}}}")


def tracing(provider: str, said: str = "", by: Proxy = WEB, side: str = "0.0.0.0_80", *more: Plain) -> dict[str, Any]:
    """The tracing of a side, with that provider; {} where there is none."""
    mesh = f"extensionProviders: [{{name: p, {provider}}}]"
    spec = telemetry(f"tracing: [{{providers: [{{name: p}}]{', ' + said if said else ''}}}]")
    found: dict[str, Any] = http(listeners(SHOP, COLLECTOR, WEB_POD, spec, *more, by=by, mesh=mesh)[side]).get(
        "tracing", {}
    )
    return found


def tracer(provider: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = tracing(provider, **more)["provider"]["typedConfig"]
    return found


# -- tracers ---------------------------------------------------------------------------------------------------------------


def test_zipkin_by_endpoint_and_for_old_proxies_by_cluster() -> None:
    said = f"zipkin: {{{AT}, path: /x, timeout: 2s, traceContextOption: USE_B3_WITH_W3C_PROPAGATION, enable64bitTraceId: true}}"
    new = tracer(said)
    assert new["collectorService"]["httpUri"] == {
        **HTTP_URI,
        "uri": "http://obs.obs.svc.cluster.local/x",
        "timeout": "2s",
    }
    assert (new["traceContextOption"], new.get("traceId128bit", False)) == ("USE_B3_WITH_W3C_PROPAGATION", False)
    for old in (replace(WEB, version="1.27.3"), replace(WEB, version="", envoy=(1, 34))):
        found = tracer(said, by=old)
        assert (found["collectorCluster"], found["collectorEndpoint"]) == (HTTP_URI["cluster"], "/x")
        assert "collectorService" not in found
        assert "traceContextOption" not in found


def test_dynatrace_samples_all_that_it_is_shown() -> None:
    said = f"opentelemetry: {{{AT}, http: {{path: /otlp}}, dynatraceSampler: {{tenant: t, clusterId: 7}}, resourceDetectors: {{dynatrace: {{}}}}}}"
    found = tracing(said, "randomSamplingPercentage: 3")
    assert found["randomSampling"] == {"value": 100.0}
    config = found["provider"]["typedConfig"]
    assert config["httpService"]["httpUri"] == {**HTTP_URI, "uri": "obs.obs.svc.cluster.local/otlp"}
    sampler = config["sampler"]["typedConfig"]
    assert (sampler["tenant"], sampler["clusterId"]) == ("t", 7)
    assert sampler["httpService"]["httpUri"]["uri"] == "obs.obs.svc.cluster.local/api/v2/samplingConfiguration"
    assert [d["name"].rpartition(".")[2] for d in config["resourceDetectors"]] == ["dynatrace"]


def test_names_by_convention_bring_the_detector_of_the_environment() -> None:
    said = f"opentelemetry: {{{GRPC}, serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS}}"
    found = tracer(said, by=proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, WORKLOAD_NAME="web-v1"))
    assert found["serviceName"] == "web-v1"
    assert [d["name"].rpartition(".")[2] for d in found["resourceDetectors"]] == ["environment"]
    named = proxy(
        "sidecar",
        "web-0",
        "a",
        "10.1.0.1",
        {"app": "web"},
        ANNOTATIONS={"resource.opentelemetry.io/service.name": "shop"},
    )
    assert tracer(said, by=named)["serviceName"] == "shop"


def test_the_name_of_a_workload_is_its_nodes_cluster() -> None:
    assert tracer(f"opentelemetry: {{{GRPC}}}", by=replace(WEB, node_cluster="web.a"))["serviceName"] == "web.a"
    assert tracer(f"datadog: {{{AT}}}", by=replace(WEB, node_cluster="web.a"))["serviceName"] == "web.a"


def test_headers_have_values_of_the_control_planes_environment() -> None:
    made = World(
        f"extensionProviders: [{{name: p, opentelemetry: {{{GRPC}, grpc: {{timeout: 3s, initialMetadata: [{{name: t, envName: T}}]}}}}}}]"
    )
    made.mesh.environment["T"] = "secret"
    made.apply_objects(SHOP, COLLECTOR, WEB_POD, telemetry("tracing: [{providers: [{name: p}]}]"))
    assert {name for name, r in made.resources(made.connect(WEB))[LISTENER].items() if b"secret" in r.any} >= {
        "virtualInbound",
        "0.0.0.0_80",
    }


@pytest.mark.parametrize("provider", [f"zipkin: {{{AT}}}", f"datadog: {{{AT}}}"])
def test_where_a_sidecar_hides_the_collector_there_are_no_spans(provider: str) -> None:
    hidden = make("Sidecar", "s", "{egress: [{hosts: ['./*']}]}")
    assert tracing(provider, "", WEB, "0.0.0.0_80", hidden) == {}
    assert tracing(provider, "", WEB, "virtualInbound", hidden) == {}
    seen = make("Sidecar", "s", "{egress: [{hosts: ['./*', 'obs/*']}]}")
    assert "provider" in tracing(provider, "", WEB, "virtualInbound", seen)


def test_a_build_without_the_tracer_traces_nothing() -> None:
    assert tracing(f"zipkin: {{{AT}}}", by=replace(WEB, extensions=frozenset(("x",)))) == {}


def test_tags_by_format_are_for_proxies_that_know_them() -> None:
    tags = "enableIstioTags: false, customTags: {a: {formatter: {value: '%PROTOCOL%'}}, b: {literal: {value: c}}}"
    assert [t["tag"] for t in tracing(f"opentelemetry: {{{GRPC}}}", tags)["customTags"]] == ["a", "b"]
    assert [
        t["tag"] for t in tracing(f"opentelemetry: {{{GRPC}}}", tags, replace(WEB, envoy=(1, 36)))["customTags"]
    ] == ["b"]


def test_a_trace_that_is_not_propagated_says_so_in_a_field_that_our_messages_do_not_have() -> None:
    built = build_request_tracing(RequestTracing(propagates_context=False), SpanTagsFacet())
    assert bytes((13 << 3, 1)) in built.SerializeToString()
    assert hcm_pb2.HttpConnectionManager.FromString(built.SerializeToString()) == built


@pytest.mark.parametrize(
    ("path", "url"),
    [("/v1/traces", "h/v1/traces"), ("v1", "h/v1"), ("", "h"), ("//a/./b/../c/", "h/a/c/"), ("/a?b c", "h/a%3Fb%20c")],
)
def test_urls_of_collectors(path: str, url: str) -> None:
    assert join_url("h", path) == url


# -- statistics ------------------------------------------------------------------------------------------------------------


def stats(by: Proxy = WEB) -> dict[str, list[str]]:
    found = listeners(SHOP, WEB_POD, telemetry("metrics: [{providers: [{name: prometheus}]}]"), by=by)
    return {
        "http": http_filters(found["0.0.0.0_80"]),
        "tcp": [f["name"] for f in chains(found["10.96.0.1_81"])[0]["filters"]],
        "inbound": [f["name"] for f in chains(found["virtualInbound"])[0]["filters"]],
    }


def test_requests_and_connections_are_counted_on_both_sides() -> None:
    assert all("istio.stats" in names for names in stats().values())


def test_a_stock_envoy_is_not_sent_the_filter_that_it_does_not_have() -> None:
    assert not any(
        "istio.stats" in names
        for names in stats(replace(WEB, extensions=frozenset(("envoy.filters.http.router",)))).values()
    )


# -- access logs -----------------------------------------------------------------------------------------------------------


def test_a_filter_that_a_proxy_cannot_evaluate_keeps_its_logger_out() -> None:
    spec = telemetry("accessLogging: [{providers: [{name: envoy}], filter: {expression: 'response.code > 400'}}]")
    (log,) = last(chains(listeners(SHOP, WEB_POD, spec)["10.96.0.1_81"])[0])["accessLog"]
    assert log["filter"]["extensionFilter"]["typedConfig"]["expression"] == "response.code > 400"
    without = replace(WEB, extensions=frozenset(("envoy.access_loggers.file",)))
    assert "accessLog" not in last(chains(listeners(SHOP, WEB_POD, spec, by=without)["10.96.0.1_81"])[0])


def test_the_mesh_logs_where_no_provider_of_a_telemetry_can_be_reached() -> None:
    mesh = f"{{accessLogFile: /mesh, extensionProviders: [{{name: als, envoyTcpAls: {{{GRPC}}}}}]}}"
    spec = telemetry("accessLogging: [{providers: [{name: als}]}]")
    (log,) = last(chains(listeners(SHOP, WEB_POD, spec, mesh=mesh)["10.96.0.1_81"])[0])["accessLog"]
    assert log["typedConfig"]["path"] == "/mesh"
    (log,) = last(chains(listeners(SHOP, WEB_POD, COLLECTOR, spec, mesh=mesh)["10.96.0.1_81"])[0])["accessLog"]
    assert (
        log["typedConfig"]["commonConfig"]["grpcService"]["envoyGrpc"]["clusterName"]
        == "outbound|4317||obs.obs.svc.cluster.local"
    )


# -- builds ----------------------------------------------------------------------------------------------------------------

EXTENSIONS = frozenset(name for need in TELEMETRY_REQUIREMENTS.values() for name in need.extensions)


@pytest.mark.parametrize(
    ("by", "lacks"),
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
def test_what_a_build_lacks(by: Proxy, lacks: set[str]) -> None:
    assert unsupported_telemetry(by) == lacks
