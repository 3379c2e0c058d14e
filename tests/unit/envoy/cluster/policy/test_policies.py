"""Effect of DestinationRule traffic policies on clusters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from testing.mesh.clusters import CLIENT, HOST, ROUTER, SERVICE, cluster, clusters, entry, http_options, rule

UNLIMITED = {
    "maxConnections": 4294967295,
    "maxPendingRequests": 4294967295,
    "maxRequests": 4294967295,
    "maxRetries": 4294967295,
}

# -- load balancing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {"lbPolicy": "LEAST_REQUEST"}),
        ("simple: ROUND_ROBIN", {}),
        ("simple: RANDOM", {"lbPolicy": "RANDOM"}),
        ("simple: LEAST_REQUEST", {"lbPolicy": "LEAST_REQUEST"}),
        (
            "simple: LEAST_REQUEST, warmup: {duration: 30s}",
            {
                "lbPolicy": "LEAST_REQUEST",
                "leastRequestLbConfig": {
                    "slowStartConfig": {
                        "slowStartWindow": "30s",
                        "aggression": {"defaultValue": 1.0, "runtimeKey": "("},
                        "minWeightPercent": {"value": 10.0},
                    }
                },
            },
        ),
        (
            "simple: ROUND_ROBIN, warmup: {duration: 3s, aggression: 2, minimumPercent: 5}",
            {
                "roundRobinLbConfig": {
                    "slowStartConfig": {
                        "slowStartWindow": "3s",
                        "aggression": {"defaultValue": 2.0, "runtimeKey": "("},
                        "minWeightPercent": {"value": 5.0},
                    }
                }
            },
        ),
        (
            "simple: ROUND_ROBIN, warmupDurationSecs: 4s",
            {"roundRobinLbConfig": {"slowStartConfig": {"slowStartWindow": "4s"}}},
        ),
        (
            "consistentHash: {httpHeaderName: x}",
            {"lbPolicy": "RING_HASH", "ringHashLbConfig": {"minimumRingSize": "1024"}},
        ),
        (
            "consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 7}}",
            {"lbPolicy": "RING_HASH", "ringHashLbConfig": {"minimumRingSize": "7"}},
        ),
        ("consistentHash: {httpHeaderName: x, ringHash: {}}", {"lbPolicy": "RING_HASH"}),
        (
            "consistentHash: {httpHeaderName: x, maglev: {tableSize: 1009}}",
            {"lbPolicy": "MAGLEV", "maglevLbConfig": {"tableSize": "1009"}},
        ),
    ],
)
def test_load_balancer_algorithms(settings: str, expected: dict[str, Any]) -> None:
    config = cluster(rule(f"{{loadBalancer: {{{settings}}}}}") if settings else "")
    assert {
        k: v for k, v in config.items() if k.startswith("lb") or (k.endswith("LbConfig") and k != "commonLbConfig")
    } == expected
    assert config["type"] == "EDS"


def test_passthrough_uses_the_original_destination() -> None:
    config = cluster(
        rule("{loadBalancer: {simple: PASSTHROUGH}}", "[{name: v1, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]")
    )
    assert (config["type"], config["lbPolicy"]) == ("ORIGINAL_DST", "CLUSTER_PROVIDED")
    assert "edsClusterConfig" not in config
    assert "transportSocketMatches" not in config  # without EDS endpoints, TLS applies to all or none
    assert config["transportSocket"]["name"] == "envoy.transport_sockets.tls"
    subset = cluster(
        rule("{loadBalancer: {simple: PASSTHROUGH}}", "[{name: v1, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]"),
        subset="v1",
    )
    assert (subset["type"], subset["lbPolicy"]) == ("ORIGINAL_DST", "CLUSTER_PROVIDED")


@pytest.mark.parametrize(
    ("settings", "mesh", "expected"),
    [
        ("localityLbSetting: {distribute: [{from: 'a/*', to: {'a/*': 100}}]}", "", "localityWeightedLbConfig"),
        ("localityLbSetting: {failover: [{from: a, to: b}]}", "", ""),
        (
            "localityLbSetting: {failover: [{from: a, to: b}]}}, outlierDetection: {interval: 1s",
            "",
            "localityWeightedLbConfig",
        ),
        ("localityLbSetting: {enabled: false, failoverPriority: [x]}}, outlierDetection: {interval: 1s", "", ""),
        (
            "simple: RANDOM",
            "localityLbSetting: {distribute: [{from: 'a/*', to: {'a/*': 100}}]}",
            "localityWeightedLbConfig",
        ),
        ("zoneAwareLbSetting: {}", "", "zoneAwareLbConfig"),
        ("simple: RANDOM", "zoneAwareLbSetting: {minClusterSize: 4}", "zoneAwareLbConfig"),
        ("localityLbSetting: {enabled: false}", "zoneAwareLbSetting: {}", ""),
    ],
)
def test_locality_settings(settings: str, mesh: str, expected: str) -> None:
    common = cluster(rule(f"{{loadBalancer: {{{settings}}}}}"), mesh=mesh)["commonLbConfig"]
    assert [k for k in common if k != "healthyPanicThreshold"] == ([expected] if expected else [])


def test_zone_awareness_can_be_disabled() -> None:
    common = cluster(rule("{loadBalancer: {zoneAwareLbSetting: {enabled: false, minClusterSize: 3}}}"))[
        "commonLbConfig"
    ]
    assert common["zoneAwareLbConfig"] == {"routingEnabled": {}, "minClusterSize": "3"}


def test_traffic_distribution_enables_locality_weights() -> None:
    annotation = "annotations: {networking.istio.io/traffic-distribution: PreferClose}"
    service = SERVICE.replace(
        "{name: api, namespace: shop, creation", f"{{name: api, namespace: shop, {annotation}, creation"
    )
    config = cluster("---" + service + rule("{outlierDetection: {minHealthPercent: 50}}"))
    assert config["commonLbConfig"] == {"healthyPanicThreshold": {}, "localityWeightedLbConfig": {}}


# -- circuit breakers and connection pools ---------------------------------------------------------------------------------


def test_circuit_breaker_thresholds() -> None:
    config = cluster(
        rule(
            "{connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 2, http2MaxRequests: 3, maxRetries: 4}}}"
        )
    )
    assert config["circuitBreakers"]["thresholds"] == [
        {"maxConnections": 1, "maxPendingRequests": 2, "maxRequests": 3, "maxRetries": 4}
    ]
    assert cluster()["circuitBreakers"]["thresholds"] == [UNLIMITED]
    published = cluster(environ={"DISABLE_TRACK_REMAINING_CB_METRICS": "false"})
    assert published["circuitBreakers"]["thresholds"] == [{**UNLIMITED, "trackRemaining": True}]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("{}", {"budgetPercent": {"value": 20.0}, "minRetryConcurrency": 3}),
        ("{percent: 12.5, minRetryConcurrency: 9}", {"budgetPercent": {"value": 12.5}, "minRetryConcurrency": 9}),
        ("{percent: 0}", {"budgetPercent": {}, "minRetryConcurrency": 3}),
    ],
)
def test_retry_budgets(budget: str, expected: dict[str, Any]) -> None:
    assert cluster(rule(f"{{retryBudget: {budget}}}"))["circuitBreakers"]["thresholds"] == [
        {**UNLIMITED, "retryBudget": expected}
    ]


def test_connection_settings() -> None:
    settings = "tcp: {connectTimeout: 3s, tcpKeepalive: {time: 7200.5s, interval: 75s, probes: 9}, maxConnectionDuration: 1h, idleTimeout: 5s}"
    config = cluster(rule(f"{{connectionPool: {{{settings}}}}}"))
    assert config["connectTimeout"] == "3s"
    assert config["upstreamConnectionOptions"] == {
        "tcpKeepalive": {"keepaliveProbes": 9, "keepaliveTime": 7200, "keepaliveInterval": 75}
    }
    assert http_options(config) == {
        "commonHttpProtocolOptions": {"idleTimeout": "5s", "maxConnectionDuration": "3600s"},
        "explicitHttpConfig": {"httpProtocolOptions": {}},
    }
    plain = cluster(mesh="connectTimeout: 7s\ntcpKeepalive: {}")
    assert plain["connectTimeout"] == "7s"
    assert plain["upstreamConnectionOptions"] == {"tcpKeepalive": {}}


MESH_KEEPALIVE = "tcpKeepalive: {probes: 3, time: 10s, interval: 5s}"


@pytest.mark.parametrize(
    ("mesh", "rule_keepalive", "expected"),
    [
        ("", "", None),
        (MESH_KEEPALIVE, "", (3, 10, 5)),
        ("", "{probes: 7, time: 20s, interval: 8s}", (7, 20, 8)),
        (MESH_KEEPALIVE, "{time: 20s}", (3, 20, 5)),
        (MESH_KEEPALIVE, "{probes: 7}", (7, 10, 5)),
        (MESH_KEEPALIVE, "{interval: 8s}", (3, 10, 8)),
        (MESH_KEEPALIVE, "{probes: 7, time: 20s, interval: 8s}", (7, 20, 8)),
        (MESH_KEEPALIVE, "{}", (3, 10, 5)),
        ("tcpKeepalive: {time: 10s}", "{interval: 8s}", (None, 10, 8)),
        ("", "{}", (None, None, None)),
    ],
)
def test_rule_keepalive_overrides_mesh_keepalive(
    mesh: str, rule_keepalive: str, expected: tuple[int | None, ...] | None
) -> None:
    config = cluster(
        rule(f"{{connectionPool: {{tcp: {{tcpKeepalive: {rule_keepalive}}}}}}}") if rule_keepalive else "", mesh=mesh
    )
    keepalive = config.get("upstreamConnectionOptions", {}).get("tcpKeepalive")
    fields = ("keepaliveProbes", "keepaliveTime", "keepaliveInterval")
    assert (None if keepalive is None else tuple(keepalive.get(f) for f in fields)) == expected


@pytest.mark.parametrize(
    ("pool", "common"),
    [
        ("tcp: {idleTimeout: 5s}, http: {idleTimeout: 9s}", {"idleTimeout": "9s"}),
        ("tcp: {idleTimeout: 5s}, http: {maxRetries: 1}", {"idleTimeout": "5s"}),
        ("http: {maxRequestsPerConnection: 0}", None),
        ("http: {maxRequestsPerConnection: 1}", {"maxRequestsPerConnection": 1}),
    ],
)
def test_connection_lifetimes(pool: str, common: dict[str, Any] | None) -> None:
    assert http_options(cluster(rule(f"{{connectionPool: {{{pool}}}}}"))).get("commonHttpProtocolOptions") == common


def test_http_options() -> None:
    settings = "http: {idleTimeout: 9s, maxRequestsPerConnection: 5, maxConcurrentStreams: 6, http2KeepAlive: {interval: 1s, timeout: 2s}}"
    policy = f"{{connectionPool: {{{settings}}}}}"
    common = {"idleTimeout": "9s", "maxRequestsPerConnection": 5}
    assert http_options(cluster(rule(policy))) == {
        "commonHttpProtocolOptions": common,
        "explicitHttpConfig": {"httpProtocolOptions": {}},
    }
    http2 = {"maxConcurrentStreams": 6, "connectionKeepalive": {"interval": "1s", "timeout": "2s"}}
    config = cluster(rule(policy), port=90)
    assert http_options(config) == {
        "commonHttpProtocolOptions": common,
        "explicitHttpConfig": {"http2ProtocolOptions": http2},
    }


HTTP2 = {"explicitHttpConfig": {"http2ProtocolOptions": {}}}
FOLLOW = {"useDownstreamProtocolConfig": {"httpProtocolOptions": {}, "http2ProtocolOptions": {}}}


@pytest.mark.parametrize(
    ("port", "settings", "mesh", "expected"),
    [
        (80, "", "", {}),
        (90, "", "", HTTP2),
        (70, "", "", FOLLOW),
        (80, "h2UpgradePolicy: UPGRADE", "", HTTP2),
        (70, "h2UpgradePolicy: UPGRADE", "", FOLLOW),
        (80, "", "h2UpgradePolicy: UPGRADE", HTTP2),
        (70, "", "h2UpgradePolicy: UPGRADE", FOLLOW),
        (80, "h2UpgradePolicy: DO_NOT_UPGRADE", "h2UpgradePolicy: UPGRADE", {}),
        (80, "useClientProtocol: true", "h2UpgradePolicy: UPGRADE", FOLLOW),
        (90, "useClientProtocol: true", "", FOLLOW),
    ],
)
def test_http_protocols(port: int, settings: str, mesh: str, expected: dict[str, Any]) -> None:
    config = cluster(rule(f"{{connectionPool: {{http: {{{settings}}}}}}}") if settings else "", port=port, mesh=mesh)
    assert http_options(config) == expected


def test_router_does_not_use_the_downstream_protocol() -> None:
    assert http_options(cluster(port=70, proxy=ROUTER)) == {}


def test_header_case_is_preserved() -> None:
    mesh = "defaultConfig: {proxyHeaders: {preserveHttp1HeaderCase: true}}"
    case = {
        "headerKeyFormat": {
            "statefulFormatter": {
                "name": "preserve_case",
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig"
                },
            }
        }
    }
    assert http_options(cluster(mesh=mesh)) == {"explicitHttpConfig": {"httpProtocolOptions": case}}
    assert http_options(cluster(mesh=mesh, port=90)) == HTTP2
    assert http_options(cluster(mesh=mesh, port=70)) == {
        "useDownstreamProtocolConfig": {"httpProtocolOptions": case, "http2ProtocolOptions": {}}
    }


# -- outlier detection -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "interval: 1s, baseEjectionTime: 2s, maxEjectionPercent: 3",
            {"interval": "1s", "baseEjectionTime": "2s", "maxEjectionPercent": 3},
        ),
        ("consecutive5xxErrors: 4", {"consecutive5xx": 4, "enforcingConsecutive5xx": 100}),
        ("consecutive5xxErrors: 0", {"consecutive5xx": 0, "enforcingConsecutive5xx": 0}),
        ("consecutive5xxErrors: 1", {"consecutive5xx": 1, "enforcingConsecutive5xx": 100}),
        ("consecutiveGatewayErrors: 4", {"consecutiveGatewayFailure": 4, "enforcingConsecutiveGatewayFailure": 100}),
        ("consecutiveGatewayErrors: 1", {"consecutiveGatewayFailure": 1, "enforcingConsecutiveGatewayFailure": 100}),
        ("consecutiveGatewayErrors: 0", {"consecutiveGatewayFailure": 0, "enforcingConsecutiveGatewayFailure": 0}),
        ("maxEjectionPercent: 0", {}),
        ("maxEjectionPercent: 1", {"maxEjectionPercent": 1}),
        (
            "splitExternalLocalOriginErrors: true",
            {"splitExternalLocalOriginErrors": True, "enforcingLocalOriginSuccessRate": 0},
        ),
        (
            "splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 0",
            {"splitExternalLocalOriginErrors": True, "enforcingLocalOriginSuccessRate": 0},
        ),
        (
            "splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 4",
            {
                "splitExternalLocalOriginErrors": True,
                "consecutiveLocalOriginFailure": 4,
                "enforcingConsecutiveLocalOriginFailure": 100,
                "enforcingLocalOriginSuccessRate": 0,
            },
        ),
    ],
)
def test_outlier_detection(settings: str, expected: dict[str, Any]) -> None:
    assert cluster(rule(f"{{outlierDetection: {{{settings}}}}}"))["outlierDetection"] == {
        "enforcingSuccessRate": 0,
        **expected,
    }


def test_panic_thresholds() -> None:
    assert cluster()["commonLbConfig"] == {"healthyPanicThreshold": {}}
    assert cluster(rule("{outlierDetection: {minHealthPercent: 40}}"))["commonLbConfig"] == {
        "healthyPanicThreshold": {"value": 40.0}
    }
    off = {"PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS": "false"}
    assert cluster(rule("{outlierDetection: {minHealthPercent: 0}}"), environ=off)["commonLbConfig"] == {
        "healthyPanicThreshold": {}
    }
    assert cluster(rule("{outlierDetection: {minHealthPercent: 1}}"), environ=off)["commonLbConfig"] == {
        "healthyPanicThreshold": {"value": 1.0}
    }
    assert cluster(environ={"PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS": "false"})["commonLbConfig"] == {}
    unhealthy_allowed = cluster(
        rule("{outlierDetection: {minHealthPercent: 40}}"), environ={"PILOT_SEND_UNHEALTHY_ENDPOINTS": "true"}
    )
    assert unhealthy_allowed["commonLbConfig"] == {"healthyPanicThreshold": {}}


def test_outlier_detection_error_codes() -> None:
    def status(code: str) -> dict[str, Any]:
        return {"httpResponseHeadersMatch": {"headers": [{"name": ":status", "stringMatch": {"exact": code}}]}}

    single_code = http_options(cluster(rule("{outlierDetection: {outlierDetectionHttpErrorCodes: [503]}}")))
    assert single_code["outlierDetection"] == {"errorMatcher": status("503")}
    several_codes = http_options(cluster(rule("{outlierDetection: {outlierDetectionHttpErrorCodes: [503, 429]}}")))
    assert several_codes["outlierDetection"] == {"errorMatcher": {"orMatch": {"rules": [status("503"), status("429")]}}}


# -- precedence ------------------------------------------------------------------------------------------------------------

POOL, OTHER_POOL = "connectionPool: {tcp: {maxConnections: 1}}", "connectionPool: {tcp: {maxConnections: 2}}"
RANDOM = "loadBalancer: {simple: RANDOM}"


def shape(config: dict[str, Any]) -> tuple[int, str]:
    return config["circuitBreakers"]["thresholds"][0]["maxConnections"], config.get("lbPolicy", "")


@pytest.mark.parametrize(
    ("policy", "subset", "expected", "subset_expected"),
    [
        (f"{{{POOL}, {RANDOM}}}", "", (1, "RANDOM"), (1, "RANDOM")),
        (f"{{{POOL}, {RANDOM}}}", f"{{{OTHER_POOL}}}", (1, "RANDOM"), (2, "RANDOM")),
        (
            f"{{{RANDOM}, portLevelSettings: [{{port: {{number: 80}}, {POOL}}}]}}",
            "",
            (1, "LEAST_REQUEST"),
            (1, "LEAST_REQUEST"),
        ),
        (
            f"{{{RANDOM}, portLevelSettings: [{{port: {{number: 81}}, {POOL}}}]}}",
            "",
            (2**32 - 1, "RANDOM"),
            (2**32 - 1, "RANDOM"),
        ),
        (
            f"{{{RANDOM}}}",
            f"{{portLevelSettings: [{{port: {{number: 80}}, {POOL}}}]}}",
            (2**32 - 1, "RANDOM"),
            (1, "LEAST_REQUEST"),
        ),
        ("", f"{{{POOL}}}", (2**32 - 1, "LEAST_REQUEST"), (1, "LEAST_REQUEST")),
    ],
)
def test_policy_levels(policy: str, subset: str, expected: tuple[int, str], subset_expected: tuple[int, str]) -> None:
    subsets = f"[{{name: v1{', trafficPolicy: ' + subset if subset else ''}}}]"
    configs = clusters(rule(policy, subsets))
    assert shape(configs[f"outbound|80||{HOST}"]) == expected
    assert shape(configs[f"outbound|80|v1|{HOST}"]) == subset_expected


def test_mesh_defaults_replace_whole_sections() -> None:
    mesh = "defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}, outlierDetection: {interval: 3s}}"
    configs = clusters(rule("{connectionPool: {http: {maxRetries: 1}}}"), mesh=mesh)
    config = configs[f"outbound|80||{HOST}"]
    assert config["circuitBreakers"]["thresholds"] == [{**UNLIMITED, "maxRetries": 1}]
    assert config["outlierDetection"]["interval"] == "3s"
    assert shape(cluster(mesh=mesh))[0] == 5
    assert shape(configs["PassthroughCluster"])[0] == 5
    assert "outlierDetection" not in configs["PassthroughCluster"]


def test_default_pool_does_not_change_http_of_passthrough_clusters() -> None:
    mesh = "defaultTrafficPolicy: {connectionPool: {tcp: {connectTimeout: 4s}, http: {idleTimeout: 90s, maxRequestsPerConnection: 7}}}"
    for name in ("PassthroughCluster", "InboundPassthroughCluster"):
        config = clusters(mesh=mesh)[name]
        assert config["connectTimeout"] == "4s"
        assert http_options(config)["commonHttpProtocolOptions"] == {"idleTimeout": "300s"}


# -- metadata and stat names -----------------------------------------------------------------------------------------------


def test_metadata() -> None:
    services = [{"host": HOST, "name": "api", "namespace": "shop"}]
    config = "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/the-rule"
    assert cluster()["metadata"]["filterMetadata"] == {"istio": {"services": services}}
    configs = clusters(rule("{tls: {mode: SIMPLE}}", "[{name: v1, trafficPolicy: {tls: {mode: DISABLE}}}]"))
    rule_config, subset_config = configs[f"outbound|80||{HOST}"], configs[f"outbound|80|v1|{HOST}"]
    assert rule_config["metadata"]["filterMetadata"] == {
        "istio": {"services": services, "config": config, "alpn_override": "false"}
    }
    assert subset_config["metadata"]["filterMetadata"] == {
        "istio": {"services": services, "config": config, "subset": "v1"}
    }
    external = entry(
        "hosts: [ext.example.com], location: MESH_EXTERNAL, resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}]"
    )
    assert cluster(external, host="ext.example.com")["metadata"]["filterMetadata"]["istio"]["external"] is True


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", "outbound|80|v1|api.shop.svc.cluster.local;"),
        ("%SERVICE%_%SERVICE_PORT%", "api.shop_80;"),
        ("%SERVICE_NAME%.%SUBSET_NAME%.%SERVICE_PORT_NAME%", "api.v1.http;"),
        ("%SERVICE_FQDN%", "api.shop.svc.cluster.local;"),
    ],
)
def test_alt_stat_names(pattern: str, expected: str) -> None:
    mesh = f"outboundClusterStatName: '{pattern}'" if pattern else ""
    assert cluster(rule(subsets="[{name: v1}]"), subset="v1", mesh=mesh)["altStatName"] == expected


def test_upstream_filters_need_proxy_support() -> None:
    assert [f["name"] for f in cluster()["filters"]] == ["istio.metadata_exchange"]
    assert "filters" not in cluster(environ={"PILOT_ENABLE_METADATA_EXCHANGE": "false"})
    labelled = cluster(environ={"PILOT_MX_ADDITIONAL_LABELS": "tier, team"})
    assert labelled["filters"][0]["typedConfig"]["value"]["additional_labels"] == ["team", "tier"]
    config = cluster(proxy=replace(CLIENT, extensions=frozenset()))
    assert "filters" not in config
    assert "istio-peer-exchange" not in str(config)


def test_udp_ports_have_no_cluster() -> None:
    assert sorted(n for n in clusters() if HOST in n) == [f"outbound|{p}||{HOST}" for p in (70, 80, 90)]
