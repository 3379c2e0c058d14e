"""Outbound clusters of each kind of service, and the static clusters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from testing.mesh.clusters import (
    CLIENT,
    HOST,
    ROUTER,
    SERVICE,
    cluster,
    clusters,
    entry,
    http_options,
    rule,
    tls_context,
)

EXT = "ext.example.com"


def external(
    resolution: str, more: str = "", protocol: str = "HTTP", host: str = EXT, target: str = "", annotations: str = "{}"
) -> str:
    ports = f"[{{name: p, number: 80, protocol: {protocol}{target}}}]"
    return entry(
        f'hosts: ["{host}"], location: MESH_EXTERNAL, resolution: {resolution}, ports: {ports}{more}', annotations
    )


ENDPOINTS = ", endpoints: [{address: one.example.com, labels: {version: v1}}, {address: two.example.com, labels: {version: v2}}]"
ADDRESSES = ", endpoints: [{address: 1.2.3.4}]"


@pytest.mark.parametrize(
    ("resolution", "more", "type_", "router_type"),
    [
        ("STATIC", ADDRESSES, "EDS", "EDS"),
        ("NONE", "", "ORIGINAL_DST", "EDS"),
        ("DNS", "", "STRICT_DNS", "STRICT_DNS"),
        ("DNS_ROUND_ROBIN", "", "LOGICAL_DNS", "LOGICAL_DNS"),
    ],
)
def test_cluster_types(resolution: str, more: str, type_: str, router_type: str) -> None:
    assert cluster(external(resolution, more), host=EXT)["type"] == type_
    assert cluster(external(resolution, more), host=EXT, proxy=ROUTER)["type"] == router_type


def test_eds_cluster() -> None:
    config = cluster()
    assert config["edsClusterConfig"] == {
        "edsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
        "serviceName": f"outbound|80||{HOST}",
    }


def addresses(config: dict[str, Any]) -> list[str]:
    members = [m for group in config["loadAssignment"]["endpoints"] for m in group["lbEndpoints"]]
    return sorted(m["endpoint"]["address"]["socketAddress"]["address"] for m in members)


def test_dns_cluster() -> None:
    config = cluster(external("DNS", ENDPOINTS), host=EXT, mesh="dnsRefreshRate: 7s")
    assert addresses(config) == ["one.example.com", "two.example.com"]
    assert config["loadAssignment"]["clusterName"] == config["name"]
    assert (config["dnsRefreshRate"], config["dnsJitter"], config["respectDnsTtl"], config["dnsLookupFamily"]) == (
        "7s",
        "0.100s",
        True,
        "V4_ONLY",
    )
    assert config["typedDnsResolverConfig"]["typedConfig"]["udpMaxQueries"] == 100
    subsets = "[{name: v1, labels: {version: v1}}, {name: v3, labels: {version: v3}}]"
    subset = cluster(external("DNS", ENDPOINTS) + rule(subsets=subsets, host=EXT), host=EXT, subset="v1")
    assert addresses(subset) == ["one.example.com"]


def test_dns_clusters_without_endpoints_are_omitted() -> None:
    configs = clusters(external("DNS", ENDPOINTS) + rule(subsets="[{name: v3, labels: {version: v3}}]", host=EXT))
    assert sorted(n for n in configs if EXT in n) == [f"outbound|80||{EXT}"]


def test_passthrough_of_dns_service() -> None:
    config = cluster(external("DNS", ENDPOINTS) + rule("{loadBalancer: {simple: PASSTHROUGH}}", host=EXT), host=EXT)
    assert config["type"] == "ORIGINAL_DST"
    assert "loadAssignment" not in config


@pytest.mark.parametrize(
    ("ips", "environ", "family"),
    [
        (("10.0.0.1",), {}, "V4_ONLY"),
        (("2001:db8::1",), {}, "V6_ONLY"),
        (("10.0.0.1", "2001:db8::1"), {}, "V4_ONLY"),
        (("10.0.0.1", "2001:db8::1"), {"ISTIO_DUAL_STACK": "true"}, "ALL"),
        (("2001:db8::1",), {"ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS": "true"}, "ALL"),
    ],
)
def test_dns_lookup_family(ips: tuple[str, ...], environ: dict[str, str], family: str) -> None:
    config = cluster(external("DNS"), host=EXT, proxy=replace(CLIENT, ips=ips), environ=environ)
    assert config.get("dnsLookupFamily", "AUTO") == family


def test_race_first_tcp_connect() -> None:
    config = cluster(external("DNS", annotations="{istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT}"), host=EXT)
    assert (config["type"], config["dnsLookupFamily"]) == ("LOGICAL_DNS", "ALL")


def test_cluster_with_several_endpoints_is_not_logical_dns() -> None:
    race = "{istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT}"
    assert cluster(external("DNS", ENDPOINTS, annotations=race), host=EXT)["type"] == "STRICT_DNS"


def test_target_port_overrides_upstream_port() -> None:
    assert cluster(external("NONE", target=", targetPort: 8080"), host=EXT)["originalDstLbConfig"] == {
        "upstreamPortOverride": 8080
    }
    assert "originalDstLbConfig" not in cluster(external("NONE"), host=EXT)


# -- dynamic DNS -----------------------------------------------------------------------------------------------------------

WILD = "*.example.com"
VERIFIED = {"autoSni": True, "autoSanValidation": True}
HTTP2 = {"explicitHttpConfig": {"http2ProtocolOptions": {}}, "upstreamHttpProtocolOptions": VERIFIED}


@pytest.mark.parametrize(("protocol", "options"), [("HTTP", {}), ("TLS", {}), ("GRPC", HTTP2), ("HTTP2", HTTP2)])
def test_dynamic_dns_by_protocol(protocol: str, options: dict[str, Any]) -> None:
    assert http_options(cluster(external("DYNAMIC_DNS", protocol=protocol, host=WILD), host=WILD)) == options


def test_dynamic_dns_with_http_options_verifies_hosts_as_envoy_requires() -> None:
    config = cluster(external("DYNAMIC_DNS", host=WILD), host=WILD, mesh="h2UpgradePolicy: UPGRADE")
    assert http_options(config) == HTTP2
    assert not tls_context(config)


def test_dynamic_dns() -> None:
    config = cluster(external("DYNAMIC_DNS", host=WILD), host=WILD)
    assert config["lbPolicy"] == "CLUSTER_PROVIDED"
    assert config["clusterType"]["name"] == "envoy.clusters.dynamic_forward_proxy"
    assert config["clusterType"]["typedConfig"]["dnsCacheConfig"] == {
        "name": "*.example.com_dfp_dns_cache",
        "dnsLookupFamily": "V4_ONLY",
    }
    assert "type" not in config
    assert "commonLbConfig" not in config
    with_subset = clusters(
        external("DYNAMIC_DNS", host=WILD) + rule("{tls: {mode: SIMPLE}}", "[{name: v1}]", host=WILD)
    )
    assert [n for n in with_subset if WILD in n] == [f"outbound|80||{WILD}"]


@pytest.mark.parametrize(
    ("tls", "options", "insecure"),
    [
        ("mode: SIMPLE", {"autoSni": True, "autoSanValidation": True}, False),
        ("mode: SIMPLE, sni: x.com", {"autoSanValidation": True}, True),
        ("mode: SIMPLE, insecureSkipVerify: true", {"autoSni": True}, True),
        ("mode: SIMPLE, sni: x.com, insecureSkipVerify: true", None, True),
        ("mode: SIMPLE, subjectAltNames: [y.com]", {"autoSni": True, "autoSanValidation": True}, False),
        ("mode: ISTIO_MUTUAL", {"autoSni": True, "autoSanValidation": True}, False),
        ("mode: DISABLE", None, False),
    ],
)
def test_dynamic_dns_with_tls(tls: str, options: Any, insecure: bool) -> None:
    config = cluster(external("DYNAMIC_DNS", host=WILD) + rule(f"{{tls: {{{tls}}}}}", host=WILD), host=WILD)
    assert http_options(config).get("upstreamHttpProtocolOptions") == options
    assert config["clusterType"]["typedConfig"].get("allowInsecureClusterOptions", False) is insecure


# -- other clusters --------------------------------------------------------------------------------------------------------


def test_external_name_services_have_no_cluster() -> None:
    alias = """
---
apiVersion: v1
kind: Service
metadata: {name: alias, namespace: shop}
spec: {type: ExternalName, externalName: api.shop.svc.cluster.local}
"""
    assert not [n for n in clusters(alias) if "alias" in n]


def test_headless_services_over_eds() -> None:
    headless = "---" + SERVICE.replace("clusterIP: 10.96.0.1\n  clusterIPs: [10.96.0.1]", "clusterIP: None")
    assert cluster(headless)["type"] == "ORIGINAL_DST"
    assert cluster(headless, environ={"PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES": "true"})["type"] == "EDS"


def test_persistent_sessions_keep_draining_endpoints() -> None:
    label = "labels: {istio.io/persistent-session: c}"
    sticky = "---" + SERVICE.replace(
        "{name: api, namespace: shop, creation", f"{{name: api, namespace: shop, {label}, creation"
    )
    config = cluster(sticky + rule(subsets="[{name: v1}]"))
    assert config["commonLbConfig"]["overrideHostStatus"] == {
        "statuses": ["HEALTHY", "DRAINING", "UNKNOWN", "DEGRADED"]
    }


def test_redis() -> None:
    redis = "---" + SERVICE.replace("{name: other, port: 70}", "{name: redis, port: 70}")
    assert cluster(redis, port=70, environ={"PILOT_ENABLE_REDIS_FILTER": "true"})["lbPolicy"] == "MAGLEV"
    assert cluster(redis, port=70)["lbPolicy"] == "LEAST_REQUEST"


def test_fixed_clusters_of_sidecars() -> None:
    configs = clusters()
    assert configs["BlackHoleCluster"] == {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "BlackHoleCluster",
        "type": "STATIC",
        "connectTimeout": "10s",
        "altStatName": "BlackHoleCluster;",
    }
    outbound, inbound = configs["PassthroughCluster"], configs["InboundPassthroughCluster"]
    assert (outbound["type"], outbound["lbPolicy"]) == ("ORIGINAL_DST", "CLUSTER_PROVIDED")
    assert http_options(outbound)["commonHttpProtocolOptions"] == {"idleTimeout": "300s"}
    assert "upstreamBindConfig" not in outbound
    assert "filters" not in inbound
    assert "AllowAnyDynamicDNSCluster" not in configs
    assert "PassthroughCluster" not in clusters(proxy=ROUTER)


@pytest.mark.parametrize(
    ("ips", "addresses"),
    [(("10.0.0.1",), ["127.0.0.6"]), (("2001:db8::1",), ["::6"]), (("10.0.0.1", "2001:db8::1"), ["127.0.0.6", "::6"])],
)
def test_inbound_passthrough_binds_both_families(ips: tuple[str, ...], addresses: list[str]) -> None:
    bind = clusters(proxy=replace(CLIENT, ips=ips))["InboundPassthroughCluster"]["upstreamBindConfig"]
    assert [
        bind["sourceAddress"]["address"],
        *(a["address"]["address"] for a in bind.get("extraSourceAddresses", ())),
    ] == addresses


@pytest.mark.parametrize(
    ("tls", "insecure"), [("", True), ("tls: {mode: DISABLE}", True), ("tls: {mode: SIMPLE}", False)]
)
def test_allow_any_dynamic_dns(tls: str, insecure: bool) -> None:
    mesh = f"outboundTrafficPolicy: {{mode: ALLOW_ANY_DYNAMIC_DNS{', ' + tls if tls else ''}}}"
    client = replace(CLIENT, metadata={**CLIENT.metadata, "DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "localhost:15053"})
    result = clusters(mesh=mesh, proxy=client)["AllowAnyDynamicDNSCluster"]
    config = result["clusterType"]["typedConfig"]
    assert config.get("allowInsecureClusterOptions", False) is insecure
    assert config["dnsCacheConfig"]["maxHosts"] == 1024
    resolver = config["dnsCacheConfig"]["typedDnsResolverConfig"]["typedConfig"]["resolvers"]
    assert resolver == [{"socketAddress": {"address": "127.0.0.1", "portValue": 15053}}]
    assert bool(tls_context(result)) is not insecure
    assert ("useDownstreamProtocolConfig" in http_options(result)) is insecure


def test_sni_dnat_clusters() -> None:
    gateway = """
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: cross, namespace: edge}
spec: {selector: {app: ingress}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: ["*.local"], tls: {mode: AUTO_PASSTHROUGH}}]}
"""
    policy = rule("{tls: {mode: SIMPLE}, connectionPool: {tcp: {maxConnections: 3}}}", "[{name: v1}]")
    inner = "inner.shop.internal"
    resolved = external("DNS", ENDPOINTS, host=inner).replace("MESH_EXTERNAL", "MESH_INTERNAL")
    configs = clusters(
        gateway + policy + external("DNS") + resolved.replace("name: entry", "name: inner"), proxy=ROUTER
    )
    assert "loadAssignment" in configs[f"outbound_.80_._.{inner}"]
    config = configs[f"outbound_.80_._.{HOST}"]
    assert (config["type"], "loadAssignment" in config) == ("EDS", False)
    assert config["edsClusterConfig"]["serviceName"] == f"outbound_.80_._.{HOST}"
    assert "transportSocket" not in config
    assert "transportSocketMatches" not in config
    assert config["circuitBreakers"]["thresholds"][0]["maxConnections"] == 3
    assert f"outbound_.80_.v1_.{HOST}" in configs
    assert not [n for n in configs if n.startswith("outbound_.") and EXT in n]
    assert not [n for n in clusters(proxy=ROUTER) if n.startswith("outbound_.")]
