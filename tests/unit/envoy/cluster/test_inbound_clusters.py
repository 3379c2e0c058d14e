"""Inbound clusters of sidecars."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.cluster.inbound_clusters import DefaultEndpoint, parse_default_endpoint
from pilot.ingest.decode import decode_document
from testing.mesh.clusters import HOST, clusters, entry, http_options, rule
from testing.mesh.world import proxy

API = proxy("sidecar", "api-0", "shop", "10.1.0.1", {"app": "api"})
SECOND = """
---
apiVersion: v1
kind: Service
metadata: {name: second, namespace: shop, creationTimestamp: "2025-01-01T00:00:02Z"}
spec: {clusterIP: 10.96.0.2, clusterIPs: [10.96.0.2], selector: {app: api}, ports: [{name: grpc, port: 80, targetPort: 8080}, {name: x, port: 81, targetPort: 8080}]}
"""


def sidecar(spec: str) -> str:
    return f"\n---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: side, namespace: shop}}\nspec: {{{spec}}}\n"


def ingress(endpoint: str = "", number: int = 9090, more: str = "", protocol: str = "HTTP", side: str = "") -> str:
    parts = [
        f"port: {{number: {number}, protocol: {protocol}, name: p}}",
        endpoint and f"defaultEndpoint: '{endpoint}'",
        more,
    ]
    return sidecar(f"ingress: [{{{', '.join(filter(None, parts))}}}]{side}")


def inbound(objects: str = "", by: Any = API, **more: Any) -> dict[str, Any]:
    return {n: c for n, c in clusters(objects, proxy=by, **more).items() if n.startswith("inbound|")}


def test_one_cluster_per_workload_port() -> None:
    configs = inbound()
    assert sorted(configs) == ["inbound|53||", "inbound|70||", "inbound|8080||", "inbound|90||"]
    config = configs["inbound|8080||"]
    assert (config["type"], config["lbPolicy"], config["cleanupInterval"]) == (
        "ORIGINAL_DST",
        "CLUSTER_PROVIDED",
        "9223372035s",
    )
    assert config["upstreamBindConfig"] == {"sourceAddress": {"address": "127.0.0.6", "portValue": 0}}
    assert config["metadata"]["filterMetadata"] == {
        "istio": {"services": [{"host": HOST, "name": "api", "namespace": "shop"}]}
    }
    assert config["commonLbConfig"] == {}
    assert "filters" not in config
    assert "transportSocket" not in config
    assert http_options(configs["inbound|90||"]) == {"explicitHttpConfig": {"http2ProtocolOptions": {}}}


def test_every_workload_of_an_entry_with_one_endpoint_has_its_inbound_cluster() -> None:
    """The clients of a host with resolution DNS_ROUND_ROBIN use only one of the workloads that it selects."""
    spec = "hosts: [rr.example.com], resolution: DNS_ROUND_ROBIN, workloadSelector: {labels: {app: rr}}"
    objects = entry(f"{spec}, ports: [{{name: http, number: 80, targetPort: 7000, protocol: HTTP}}]")
    addresses = ("10.1.0.5", "10.1.0.6")
    for number, address in enumerate(addresses):
        status = f"{{phase: Running, podIP: {address}, conditions: [{{type: Ready, status: 'True'}}]}}"
        objects += (
            f"\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: rr-{number}, namespace: shop, labels: {{app: rr}}}}\n"
            f"spec: {{containers: [{{name: app, image: app}}]}}\nstatus: {status}\n"
        )
    for number, address in enumerate(addresses):
        workload = proxy("sidecar", f"rr-{number}", "shop", address, {"app": "rr"})
        assert "inbound|7000||" in inbound(objects, workload)
    (locality,) = clusters(objects)["outbound|80||rr.example.com"]["loadAssignment"]["endpoints"]
    (endpoint,) = locality["lbEndpoints"]
    assert endpoint["endpoint"]["address"]["socketAddress"] == {"address": addresses[0], "portValue": 7000}


def test_oldest_service_wins_and_metadata_lists_all() -> None:
    config = inbound(SECOND)["inbound|8080||"]
    assert http_options(config) == {}
    assert [s["name"] for s in config["metadata"]["filterMetadata"]["istio"]["services"]] == ["api", "second"]


def test_connection_pool_applies_to_inbound_clusters() -> None:
    policy = "{connectionPool: {tcp: {maxConnections: 7}}, loadBalancer: {simple: RANDOM}, outlierDetection: {}, tls: {mode: SIMPLE}}"
    config = inbound(rule(policy))["inbound|8080||"]
    assert config["circuitBreakers"]["thresholds"][0]["maxConnections"] == 7
    assert config["metadata"]["filterMetadata"]["istio"]["config"].endswith("/destination-rule/the-rule")
    assert config["lbPolicy"] == "CLUSTER_PROVIDED"
    assert "outlierDetection" not in config
    assert "transportSocket" not in config
    port_configs = inbound(rule("{portLevelSettings: [{port: {number: 80}, connectionPool: {http: {maxRetries: 3}}}]}"))
    assert port_configs["inbound|8080||"]["circuitBreakers"]["thresholds"][0]["maxRetries"] == 3
    assert port_configs["inbound|90||"]["circuitBreakers"]["thresholds"][0]["maxRetries"] == 2**32 - 1


def test_rules_with_workload_selector_are_ignored() -> None:
    configs = inbound(
        rule("{connectionPool: {tcp: {maxConnections: 7}}}", more="workloadSelector: {matchLabels: {app: api}}")
    )
    assert configs["inbound|8080||"]["circuitBreakers"]["thresholds"][0]["maxConnections"] == 2**32 - 1


def test_rules_of_hidden_services_are_ignored() -> None:
    objects = rule("{connectionPool: {tcp: {maxConnections: 7}}}") + sidecar('egress: [{hosts: ["elsewhere/*"]}]')
    assert inbound(objects)["inbound|8080||"]["circuitBreakers"]["thresholds"][0]["maxConnections"] == 2**32 - 1


def test_sidecar_connection_pool_wins() -> None:
    objects = rule("{connectionPool: {tcp: {maxConnections: 7}}}") + sidecar(
        "inboundConnectionPool: {http: {http2MaxRequests: 8}}"
    )
    limits = inbound(objects)["inbound|8080||"]["circuitBreakers"]["thresholds"][0]
    assert (limits["maxRequests"], limits["maxConnections"]) == (8, 2**32 - 1)


def test_localhost_inbound_traffic_policy() -> None:
    config = inbound(mesh="inboundTrafficPolicy: {mode: LOCALHOST}")["inbound|8080||"]
    assert config["type"] == "STATIC"
    assert config["loadAssignment"]["endpoints"] == [
        {"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 8080}}}}]}
    ]
    assert "upstreamBindConfig" not in config
    assert "lbPolicy" not in config


def test_alt_stat_names() -> None:
    configs = inbound(mesh="inboundClusterStatName: '%SERVICE%_%SERVICE_PORT%_%TARGET_PORT%'")
    assert configs["inbound|8080||"]["altStatName"] == "api.shop_80_8080;"


# -- ingress listeners of a Sidecar ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "type_", "address", "has_bind_config"),
    [
        ("", "ORIGINAL_DST", None, True),
        (":19090", "ORIGINAL_DST", None, True),
        ("127.0.0.1:8080", "STATIC", {"socketAddress": {"address": "127.0.0.1", "portValue": 8080}}, False),
        ("0.0.0.0:8080", "STATIC", {"socketAddress": {"address": "10.1.0.1", "portValue": 8080}}, True),
        ("unix:///run/app.sock", "STATIC", {"pipe": {"path": "/run/app.sock"}}, True),
    ],
)
def test_default_endpoints(endpoint: str, type_: str, address: Any, has_bind_config: bool) -> None:
    configs = inbound(ingress(endpoint))
    assert list(configs) == ["inbound|9090||"]
    config = configs["inbound|9090||"]
    assert config["type"] == type_
    if address is not None:
        assert config["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"] == address
    assert ("upstreamBindConfig" in config) is has_bind_config
    assert "metadata" not in config  # no service has the port


def test_default_endpoint_without_address_is_reported() -> None:
    decoded = decode_document(yaml.safe_load(ingress(":19090").removeprefix("\n---")))
    assert [(p.code, p.path, str(p.severity)) for p in decoded.problems] == [
        ("no-effect", "spec.ingress[0].defaultEndpoint", "warning")
    ]
    assert decoded.entries


def test_ingress_listener_on_a_service_port() -> None:
    config = inbound(
        rule("{connectionPool: {tcp: {maxConnections: 7}}}") + ingress("127.0.0.1:1", 8080, protocol="GRPC")
    )["inbound|8080||"]
    assert [s["name"] for s in config["metadata"]["filterMetadata"]["istio"]["services"]] == ["api"]
    assert config["circuitBreakers"]["thresholds"][0]["maxConnections"] == 7
    assert http_options(config) == {"explicitHttpConfig": {"http2ProtocolOptions": {}}}


def test_ingress_listener_connection_pool_wins() -> None:
    objects = ingress(
        "127.0.0.1:1",
        more="connectionPool: {tcp: {maxConnections: 3}}",
        side=", inboundConnectionPool: {tcp: {maxConnections: 4}}",
    )
    assert inbound(objects)["inbound|9090||"]["circuitBreakers"]["thresholds"][0]["maxConnections"] == 3


def test_merging_ingress_listeners_with_services() -> None:
    assert sorted(inbound(ingress("127.0.0.1:1", 8080))) == ["inbound|8080||"]
    configs = inbound(
        ingress("127.0.0.1:1", 8080), environ={"PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE": "true"}
    )
    assert sorted(configs) == ["inbound|53||", "inbound|70||", "inbound|8080||", "inbound|90||"]
    assert configs["inbound|8080||"]["type"] == "STATIC"


def test_without_interception_only_ingress_listeners_have_clusters() -> None:
    client = replace(API, metadata={**API.metadata, "INTERCEPTION_MODE": "NONE"})
    assert inbound(by=client) == {}
    assert list(inbound(ingress("127.0.0.1:1"), by=client)) == ["inbound|9090||"]


@pytest.mark.parametrize(
    ("text", "traits", "expected"),
    [
        ("127.0.0.1:80", ClusterTraitsKey(), DefaultEndpoint("127.0.0.1", 80)),
        ("127.0.0.1:80", ClusterTraitsKey(ipv4=False, ipv6=True), DefaultEndpoint("::1", 80)),
        ("[::1]:80", ClusterTraitsKey(), DefaultEndpoint("127.0.0.1", 80)),
        ("[::1]:80", ClusterTraitsKey(ipv6=True), DefaultEndpoint("::1", 80)),
        ("[::]:80", ClusterTraitsKey(ipv6=True), DefaultEndpoint("2001:db8::1", 80)),
        ("0.0.0.0:80", ClusterTraitsKey(), DefaultEndpoint("10.0.0.1", 80)),
        ("unix://@abstract", ClusterTraitsKey(), DefaultEndpoint("@abstract", 0)),
        ("1.2.3.4:80", ClusterTraitsKey(), None),
        ("127.0.0.1:http", ClusterTraitsKey(), None),
        ("", ClusterTraitsKey(), None),
    ],
)
def test_default_endpoints_by_ip_family(text: str, traits: ClusterTraitsKey, expected: DefaultEndpoint | None) -> None:
    assert parse_default_endpoint(text, ("10.0.0.1", "2001:db8::1"), traits) == expected


def test_default_endpoint_of_an_unsupported_ip_family() -> None:
    assert parse_default_endpoint("[::]:80", ("10.0.0.1",), ClusterTraitsKey()) == DefaultEndpoint("::1", 80)
    assert parse_default_endpoint(
        "0.0.0.0:80", ("2001:db8::1",), ClusterTraitsKey(ipv4=False, ipv6=True)
    ) == DefaultEndpoint("127.0.0.1", 80)
