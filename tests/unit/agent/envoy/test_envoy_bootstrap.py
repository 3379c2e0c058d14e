"""The complete Envoy bootstrap that the agent writes."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.agent.envoy.envoy_bootstrap import build_address, build_cluster, split_address
from pilot.agent.envoy.proxy_bootstrap import build_proxy_bootstrap
from tests.unit.agent.envoy.test_proxy_bootstrap import SETTINGS, make_context

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
CONFIG = {"zipkinAddress": "zipkin.istio-system:9411", "envoyMetricsService": {"address": "10.0.0.9:15001"}}


def at(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def cluster(name: str, kind: str, address: dict[str, Any], **more: Any) -> dict[str, Any]:
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    return {
        "name": name,
        "type": kind,
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
        **more,
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
                {"name": "mesh", "static_layer": {"re2.max_program_size.error_level": 32768}},
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
    ]
    assert [cluster_config["name"] for cluster_config in bootstrap["static_resources"]["clusters"]] == [
        "xds-grpc",
        "sds-grpc",
        "prometheus_stats",
        "agent",
    ]


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("10.0.0.1", "STATIC"),
        ("fd00::1", "STATIC"),
        ("localhost", "STRICT_DNS"),
        ("1.example", "STRICT_DNS"),
        ("a.1", "STRICT_DNS"),
    ],
)
def test_cluster_type_by_host(host: str, kind: str) -> None:
    assert build_cluster("a", at(host, 1), http2=False) == cluster("a", kind, at(host, 1))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", ("a", 1)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        ("a:0", None),
        ("a:65536", None),
        (":1", None),
        ("a", None),
        ("a:x", None),
    ],
)
def test_parsing_of_addresses(text: str, address: tuple[str, int] | None) -> None:
    if address is None:
        with pytest.raises(ValueError, match="is not host:port"):
            split_address(text)
    else:
        assert split_address(text) == address
        assert build_address(text) == at(*address)
