"""The bootstrap of Envoy, from the context of a pod."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from google.protobuf import json_format

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_process import build_arguments
from pilot.agent.envoy.proxy_bootstrap import build_agent_node, build_locality, build_proxy_bootstrap, build_runtime
from pilot.agent.proxy.effective_config import build_proxy_config
from pilot.agent.proxy.proxy_context import ProxyContext
from pilot.settings.parse import load_sections
from tests.unit.agent.envoy.test_envoy_bootstrap import at, cluster

SETTINGS = AgentSettings()
DEFAULT_RUNTIME = {
    "re2.max_program_size.error_level": 32768,
    "envoy.reloadable_features.http_reject_path_with_fragment": False,
    "envoy.reloadable_features.fixed_heap_use_allocated": True,
    "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update": False,
}


def make_context(config: dict[str, Any] | None = None, **changes: Any) -> ProxyContext:
    effective = build_proxy_config([("test", config or {})])
    context = ProxyContext(
        type="sidecar",
        name="web-1",
        namespace="shop",
        service_account="web",
        domain="shop.svc.cluster.local",
        addresses=("10.0.0.1",),
        labels={"app": "web"},
        annotations={},
        metadata={},
        config=effective.config,
        config_fields=effective.fields,
    )
    return dataclasses.replace(context, **changes)


def clusters(bootstrap: dict[str, Any]) -> dict[str, Any]:
    return {c["name"]: c for c in bootstrap["static_resources"]["clusters"]}


def test_clusters_point_to_the_agents_sockets_and_ports() -> None:
    bootstrap = build_proxy_bootstrap(
        make_context({"proxyAdminPort": 15300, "statusPort": 15320, "configPath": "./etc/other"}), SETTINGS
    )
    addresses = {
        name: c["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
        for name, c in clusters(bootstrap).items()
    }
    assert addresses["xds-grpc"] == {"pipe": {"path": "./etc/other/XDS"}}
    assert addresses["sds-grpc"] == {"pipe": {"path": "./var/run/secrets/workload-spiffe-uds/socket"}}
    assert addresses["agent"] == {"socket_address": {"address": "127.0.0.1", "port_value": 15320}}
    assert addresses["prometheus_stats"] == {"socket_address": {"address": "127.0.0.1", "port_value": 15300}}
    assert bootstrap["admin"]["address"] == addresses["prometheus_stats"]


def test_node_metadata() -> None:
    context = make_context(
        {"concurrency": 3, "meshId": "m"},
        metadata={"CLUSTER_ID": "west", "WORKLOAD_NAME": "web"},
        addresses=("10.0.0.1", "fd00::1"),
    )
    node = build_proxy_bootstrap(context, SETTINGS)["node"]
    assert node["id"] == "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local"
    assert node["cluster"] == "web.shop"
    expected = {
        "NAMESPACE": "shop",
        "SERVICE_ACCOUNT": "web",
        "CLUSTER_ID": "west",
        "INSTANCE_IPS": "10.0.0.1,fd00::1",
        "LABELS": {"app": "web"},
        "PROXY_CONFIG": {"concurrency": 3, "meshId": "m"},
        "MESH_ID": "m",
        "ENVOY_STATUS_PORT": 15021,
        "ENVOY_PROMETHEUS_PORT": 15090,
        "INTERCEPTION_MODE": "REDIRECT",
        "MODULE_FETCH": "true",
        "WORKLOAD_NAME": "web",
    }
    assert {name: node["metadata"][name] for name in expected} == expected


@pytest.mark.parametrize(
    ("config", "flags", "labels", "expected"),
    [
        ({}, (), {"app": "web"}, "web.shop"),
        ({}, (), {}, "istio-proxy.shop"),
        ({"serviceCluster": "named"}, (), {"app": "web"}, "named"),
        ({"serviceCluster": "named"}, ("--serviceCluster", "flag"), {}, "flag"),
        (
            {"serviceCluster": None, "tracingServiceName": "CANONICAL_NAME_ONLY"},
            (),
            {"app.kubernetes.io/name": "c", "app": "a"},
            "c",
        ),
        ({"serviceCluster": None, "tracingServiceName": "CANONICAL_NAME_AND_NAMESPACE"}, (), {"app": "a"}, "a.shop"),
    ],
)
def test_node_cluster(config: dict[str, Any], flags: tuple[str, ...], labels: dict[str, str], expected: str) -> None:
    assert (
        build_agent_node(
            make_context(config, labels=labels), load_sections(AgentSettings(), flags, {}).settings
        ).cluster
        == expected
    )


def test_readiness_and_stats_listeners() -> None:
    bootstrap = build_proxy_bootstrap(
        make_context(), load_sections(AgentSettings(), (), {"ENVOY_STATUS_PORT": "16021"}).settings
    )
    routes = {}
    for listener in bootstrap["static_resources"]["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        port = listener["address"]["socket_address"]["port_value"]
        (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
        routes[port] = (route["match"], route["route"]["cluster"])
    assert routes == {
        16021: ({"path": "/healthz/ready"}, "agent"),
        15090: ({"prefix": "/stats/prometheus"}, "prometheus_stats"),
    }


def test_readiness_listener_accepts_the_proxy_protocol() -> None:
    for text, expected in (("true", ["envoy.filters.listener.proxy_protocol"]), ("false", [])):
        settings = load_sections(AgentSettings(), (), {"ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": text}).settings
        listeners = build_proxy_bootstrap(make_context(), settings)["static_resources"]["listeners"]
        filters = {
            listener["address"]["socket_address"]["port_value"]: [
                listener_filter["name"] for listener_filter in listener.get("listener_filters", ())
            ]
            for listener in listeners
        }
        assert filters == {15021: expected, 15090: []}


def test_ipv6_pod_listens_on_ipv6() -> None:
    bootstrap = build_proxy_bootstrap(make_context(addresses=("fd00::1",)), SETTINGS)
    assert bootstrap["admin"]["address"]["socket_address"]["address"] == "::1"
    assert {
        listener["address"]["socket_address"]["address"] for listener in bootstrap["static_resources"]["listeners"]
    } == {"::"}
    assert "v6" in build_arguments(make_context(addresses=("fd00::1",)), SETTINGS)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"istio-locality": "eu.west.a"}, {"region": "eu", "zone": "west", "sub_zone": "a"}),
        ({"topology.istio.io/locality": "eu/west", "istio-locality": "us"}, {"region": "eu", "zone": "west"}),
        ({}, {}),
    ],
)
def test_locality_comes_from_a_label(labels: dict[str, str], expected: dict[str, str]) -> None:
    assert build_locality(labels) == expected


def test_runtime_values_override_or_remove_defaults() -> None:
    assert build_runtime({"a": "true", "b": "1.5"}) == {**DEFAULT_RUNTIME, "a": True, "b": "1.5"}
    assert "re2.max_program_size.error_level" not in build_runtime({"re2.max_program_size.error_level": ""})


def test_consistent_hashing_reaches_new_endpoints() -> None:
    """Release note 60312."""
    assert build_runtime({})["envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update"] is False


VARIABLE, RUNTIME_VALUE = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS", "overload.global_downstream_max_connections"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, 2147483647),
        ({"runtimeValues": {RUNTIME_VALUE: "3"}}, 3),
        ({"runtimeValues": {RUNTIME_VALUE: "3"}, "proxyMetadata": {VARIABLE: "2"}}, 2),
        ({"proxyMetadata": {VARIABLE: "2"}, "connectionSettings": {"globalDownstreamConnectionLimit": 1}}, 1),
    ],
)
def test_global_limit_of_connections(config: dict[str, Any], expected: int) -> None:
    """Release notes global-downstream-max-connections and global-downstream-connection-limit."""
    bootstrap = build_proxy_bootstrap(make_context(config), SETTINGS)
    (monitor,) = bootstrap["overload_manager"]["resource_monitors"]
    assert monitor["typed_config"]["max_active_downstream_connections"] == expected
    assert RUNTIME_VALUE not in bootstrap["layered_runtime"]["layers"][0]["static_layer"]


def test_global_limit_of_connections_must_be_a_number() -> None:
    with pytest.raises(ValueError, match=rf"ProxyConfig: proxyMetadata.{VARIABLE}: 'many' is not a number of conn"):
        build_proxy_bootstrap(make_context({"proxyMetadata": {VARIABLE: "many"}}), SETTINGS)


def http_filters(bootstrap: dict[str, Any], port: int) -> list[str]:
    (selected,) = (
        entry
        for entry in bootstrap["static_resources"]["listeners"]
        if entry["address"]["socket_address"]["port_value"] == port
    )
    manager = selected["filter_chains"][0]["filters"][0]["typed_config"]
    return [http_filter["name"].removeprefix("envoy.filters.http.") for http_filter in manager["http_filters"]]


def test_metrics_are_compressed_unless_disabled() -> None:
    """Release note 48051."""
    compressed = ["compressor.brotli", "compressor.zstd", "compressor.gzip", "router"]
    assert http_filters(build_proxy_bootstrap(make_context(), SETTINGS), 15090) == compressed
    plain = build_proxy_bootstrap(make_context({"statsCompression": False}), SETTINGS)
    assert http_filters(plain, 15090) == ["router"]


def test_secure_metrics_ports_require_certificates_of_the_mesh() -> None:
    """Release note secure-metrics-port."""
    variables = {"ENVOY_SECURE_METRICS_PORT": "15091", "ENVOY_SECURE_MERGED_METRICS_PORT": "15092"}
    settings = load_sections(AgentSettings(), (), variables).settings
    listeners = build_proxy_bootstrap(make_context(), settings)["static_resources"]["listeners"]
    routes = {}
    for entry in listeners:
        (chain,) = entry["filter_chains"]
        if "transport_socket" not in chain:
            continue
        tls = chain["transport_socket"]["typed_config"]
        assert tls["require_client_certificate"] is True
        context = tls["common_tls_context"]
        (certificate,) = context["tls_certificate_sds_secret_configs"]
        roots = context["combined_validation_context"]["validation_context_sds_secret_config"]
        assert (certificate["name"], roots["name"]) == ("default", "ROOTCA")
        port = entry["address"]["socket_address"]["port_value"]
        (host,) = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
        routes[port] = [(route["match"]["prefix"], route["route"]["cluster"]) for route in host["routes"]]
    assert routes == {
        15091: [("/stats/prometheus", "prometheus_stats")],
        15092: [("/stats/prometheus", "agent"), ("/metrics", "agent")],
    }


def test_proxy_config_servers_become_clusters() -> None:
    config = {
        "tracing": {"zipkin": {"address": "zipkin.istio-system:9411"}},
        "envoyMetricsService": {"address": "10.0.0.9:15001"},
        "envoyAccessLogService": {"address": "als:15002"},
    }
    bootstrap = build_proxy_bootstrap(make_context(config), SETTINGS)
    assert {"zipkin", "envoy_metrics_service", "envoy_accesslog_service"} <= clusters(bootstrap).keys()
    assert clusters(bootstrap)["zipkin"]["type"] == "STRICT_DNS"
    assert bootstrap["stats_sinks"][0]["typed_config"]["grpc_service"] == {
        "envoy_grpc": {"cluster_name": "envoy_metrics_service"}
    }


def test_self_discovery_adds_the_local_cluster() -> None:
    bootstrap = build_proxy_bootstrap(make_context(metadata={"ENABLE_SELF_DISCOVERY": "true"}), SETTINGS)
    assert clusters(bootstrap)["local_cluster"]["type"] == "EDS"
    assert bootstrap["cluster_manager"] == {"local_cluster_name": "local_cluster"}


def test_ejections_are_logged_to_the_file_of_the_flag() -> None:
    settings = load_sections(AgentSettings(), ("--outlierLogPath", "/dev/stdout"), {}).settings
    bootstrap = build_proxy_bootstrap(make_context(), settings)
    assert bootstrap["cluster_manager"] == {"outlier_detection": {"event_log_path": "/dev/stdout"}}
    assert bootstrap["node"]["metadata"]["OUTLIER_LOG_PATH"] == "/dev/stdout"


def test_invalid_address_is_named() -> None:
    with pytest.raises(ValueError, match="ProxyConfig: the address of zipkin: 'nowhere' is not host:port"):
        build_proxy_bootstrap(make_context({"tracing": {"zipkin": {"address": "nowhere"}}}), SETTINGS)


def test_service_with_tls_is_rejected() -> None:
    config = {"envoyMetricsService": {"address": "a:1", "tlsSettings": {"mode": "MUTUAL"}}}
    with pytest.raises(ValueError, match="envoy_metrics_service with TLS is not supported"):
        build_proxy_bootstrap(make_context(config), SETTINGS)


def test_annotation_intervals_use_envoys_format() -> None:
    annotations = {"sidecar.istio.io/statsFlushInterval": "1m500ms", "sidecar.istio.io/statsEvictionInterval": "2m1s"}
    bootstrap = build_proxy_bootstrap(make_context(annotations=annotations), SETTINGS)
    assert (bootstrap["stats_flush_interval"], bootstrap["stats_eviction_interval"]) == ("60.5s", "121s")
    with pytest.raises(ValueError, match=r"annotation sidecar\.istio\.io/statsFlushInterval: invalid duration 'often'"):
        build_proxy_bootstrap(make_context(annotations={"sidecar.istio.io/statsFlushInterval": "often"}), SETTINGS)


def test_bootstrap_matches_envoys_schema() -> None:
    from envoy.config.bootstrap.v3 import bootstrap_pb2
    from envoy.config.metrics.v3 import metrics_service_pb2  # noqa: F401 (its type is in the message)
    from envoy.extensions.bootstrap.internal_listener.v3 import internal_listener_pb2  # noqa: F401
    from envoy.extensions.compression.brotli.compressor.v3 import brotli_pb2  # noqa: F401
    from envoy.extensions.compression.gzip.compressor.v3 import gzip_pb2  # noqa: F401
    from envoy.extensions.compression.zstd.compressor.v3 import zstd_pb2  # noqa: F401
    from envoy.extensions.filters.http.compressor.v3 import compressor_pb2  # noqa: F401
    from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401
    from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2  # noqa: F401
    from envoy.extensions.resource_monitors.downstream_connections.v3 import downstream_connections_pb2  # noqa: F401
    from envoy.extensions.transport_sockets.tls.v3 import tls_pb2  # noqa: F401
    from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2  # noqa: F401

    config = {"envoyMetricsService": {"address": "a:1"}, "extraStatTags": ["t"], "runtimeValues": {"x": "false"}}
    annotations = {"sidecar.istio.io/statsHistogramBuckets": '{"a": [1]}', "sidecar.istio.io/statsFlushInterval": "10s"}
    bootstrap = build_proxy_bootstrap(
        make_context(config, annotations=annotations, metadata={"ENABLE_SELF_DISCOVERY": "true"}),
        load_sections(AgentSettings(), (), {"ENVOY_SECURE_METRICS_PORT": "15091"}).settings,
    )
    message = json_format.ParseDict(json.loads(json.dumps(bootstrap)), bootstrap_pb2.Bootstrap())
    assert message.node.id.startswith("sidecar~")


TYPE = "type.googleapis.com/envoy."


HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


MANAGER = "envoy.filters.network.http_connection_manager"


HTTP2 = {
    HTTP: {
        "@type": f"type.googleapis.com/{HTTP}",
        "explicit_http_config": {
            "http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "10s"}}
        },
    }
}


ADS_SOURCE = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}


CONNECTIONS = {
    "resource_monitors": [
        {
            "name": "envoy.resource_monitors.global_downstream_max_connections",
            "typed_config": {
                "@type": f"{TYPE}extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                "max_active_downstream_connections": 2147483647,
            },
        }
    ]
}


CONFIG = {
    "statsCompression": False,
    "zipkinAddress": "zipkin.istio-system:9411",
    "envoyMetricsService": {"address": "10.0.0.9:15001"},
}


def listener(port: int, stat_prefix: str, match: dict[str, str], target: str, timeout: str) -> dict[str, Any]:
    manager = {
        "@type": f"{TYPE}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": stat_prefix,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "backend",
                    "domains": ["*"],
                    "routes": [{"match": match, "route": {"cluster": target, "timeout": timeout}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{TYPE}extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    return {
        "name": f"0.0.0.0_{port}",
        "address": at("0.0.0.0", port),
        "ignore_global_conn_limit": True,
        "bypass_overload_manager": True,
        "filter_chains": [{"filters": [{"name": MANAGER, "typed_config": manager}]}],
    }


def test_sidecar_bootstrap() -> None:
    bootstrap = build_proxy_bootstrap(make_context(CONFIG, metadata={"ENABLE_SELF_DISCOVERY": "true"}), SETTINGS)
    statistics = bootstrap.pop("stats_config")
    assert bootstrap == {
        "node": {
            "id": "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local",
            "cluster": "web.shop",
            "metadata": {
                "NAME": "web-1",
                "NAMESPACE": "shop",
                "SERVICE_ACCOUNT": "web",
                "CLUSTER_ID": "Kubernetes",
                "ISTIO_VERSION": "1.32.0",
                "INSTANCE_IPS": "10.0.0.1",
                "LABELS": {"app": "web"},
                "WORKLOAD_NAME": "web",
                "INTERCEPTION_MODE": "REDIRECT",
                "INTERNAL_LISTENERS": "true",
                "ANNOTATIONS": {},
                "PROXY_CONFIG": CONFIG,
                "ENVOY_STATUS_PORT": 15021,
                "ENVOY_PROMETHEUS_PORT": 15090,
                "MODULE_FETCH": "true",
                "ENABLE_SELF_DISCOVERY": "true",
            },
            "locality": {},
        },
        "bootstrap_extensions": [
            {
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": {"@type": f"{TYPE}extensions.bootstrap.internal_listener.v3.InternalListener"},
            }
        ],
        "admin": {"address": at("127.0.0.1", 15000)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
            "cds_config": ADS_SOURCE,
            "lds_config": ADS_SOURCE,
        },
        "layered_runtime": {
            "layers": [
                {"name": "mesh", "static_layer": DEFAULT_RUNTIME},
                {"name": "admin", "admin_layer": {}},
            ]
        },
        "static_resources": {
            "clusters": [
                cluster(
                    "xds-grpc",
                    "STATIC",
                    {"pipe": {"path": "./etc/istio/proxy/XDS"}},
                    typed_extension_protocol_options=HTTP2,
                ),
                cluster(
                    "sds-grpc",
                    "STATIC",
                    {"pipe": {"path": "./var/run/secrets/workload-spiffe-uds/socket"}},
                    typed_extension_protocol_options=HTTP2,
                ),
                cluster("prometheus_stats", "STATIC", at("127.0.0.1", 15000)),
                cluster("agent", "STATIC", at("127.0.0.1", 15020)),
                cluster("zipkin", "STRICT_DNS", at("zipkin.istio-system", 9411)),
                cluster(
                    "envoy_metrics_service", "STATIC", at("10.0.0.9", 15001), typed_extension_protocol_options=HTTP2
                ),
                {
                    "name": "local_cluster",
                    "type": "EDS",
                    "connect_timeout": "1s",
                    "eds_cluster_config": {
                        "eds_config": {"ads": {}, "resource_api_version": "V3"},
                        "service_name": "local_cluster",
                    },
                },
            ],
            "listeners": [
                listener(15090, "stats", {"prefix": "/stats/prometheus"}, "prometheus_stats", "0s"),
                listener(15021, "agent", {"path": "/healthz/ready"}, "agent", "15s"),
            ],
        },
        "stats_sinks": [
            {
                "name": "envoy.stat_sinks.metrics_service",
                "typed_config": {
                    "@type": f"{TYPE}config.metrics.v3.MetricsServiceConfig",
                    "transport_api_version": "V3",
                    "grpc_service": {"envoy_grpc": {"cluster_name": "envoy_metrics_service"}},
                },
            }
        ],
        "cluster_manager": {"local_cluster_name": "local_cluster"},
        "overload_manager": CONNECTIONS,
    }
    assert {name: value for name, value in statistics.items() if name != "stats_tags"} == {
        "use_all_default_tags": False,
        "stats_matcher": {
            "inclusion_list": {
                "patterns": [
                    *(
                        {"prefix": text}
                        for text in ("cluster_manager", "listener_manager", "server", "cluster.xds-grpc")
                    ),
                    *({"prefix": text} for text in ("reporter=", "component", "istio", "wasm")),
                    *({"suffix": text} for text in ("rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied")),
                    {"safe_regex": {"regex": r"vhost\..*\.route\..*"}},
                ]
            }
        },
    }
    assert [tag["tag_name"] for tag in statistics["stats_tags"]] == [
        "cluster_name",
        "http_conn_manager_prefix",
        "tcp_prefix",
        "listener_address",
        "response_code",
        "response_code_class",
        "component",
        "authz_enforce_result",
        "authz_dry_run_action",
        "authz_dry_run_result",
    ]


def test_minimal_bootstrap_sections() -> None:
    bootstrap = build_proxy_bootstrap(make_context(), SETTINGS)
    assert list(bootstrap) == [
        "node",
        "bootstrap_extensions",
        "admin",
        "dynamic_resources",
        "layered_runtime",
        "static_resources",
        "stats_config",
        "overload_manager",
    ]
    assert [cluster_config["name"] for cluster_config in bootstrap["static_resources"]["clusters"]] == [
        "xds-grpc",
        "sds-grpc",
        "prometheus_stats",
        "agent",
    ]
