"""The clusters of each kind of service, and those that a proxy has in any case."""

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
    ("resolution", "more", "kind", "for_router"),
    [
        ("STATIC", ADDRESSES, "EDS", "EDS"),
        ("NONE", "", "ORIGINAL_DST", "EDS"),
        ("DNS", "", "STRICT_DNS", "STRICT_DNS"),
        ("DNS_ROUND_ROBIN", "", "LOGICAL_DNS", "LOGICAL_DNS"),
    ],
)
def test_types(resolution: str, more: str, kind: str, for_router: str) -> None:
    assert cluster(external(resolution, more), host=EXT)["type"] == kind
    assert cluster(external(resolution, more), host=EXT, by=ROUTER)["type"] == for_router


def test_endpoints_by_eds() -> None:
    found = cluster()
    assert found["edsClusterConfig"] == {
        "edsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
        "serviceName": f"outbound|80||{HOST}",
    }


def addresses(found: dict[str, Any]) -> list[str]:
    members = [m for group in found["loadAssignment"]["endpoints"] for m in group["lbEndpoints"]]
    return sorted(m["endpoint"]["address"]["socketAddress"]["address"] for m in members)


def test_endpoints_by_dns() -> None:
    found = cluster(external("DNS", ENDPOINTS), host=EXT, mesh="dnsRefreshRate: 7s")
    assert addresses(found) == ["one.example.com", "two.example.com"]
    assert found["loadAssignment"]["clusterName"] == found["name"]
    assert (found["dnsRefreshRate"], found["dnsJitter"], found["respectDnsTtl"], found["dnsLookupFamily"]) == (
        "7s",
        "0.100s",
        True,
        "V4_ONLY",
    )
    assert found["typedDnsResolverConfig"]["typedConfig"]["udpMaxQueries"] == 100
    subsets = "[{name: v1, labels: {version: v1}}, {name: v3, labels: {version: v3}}]"
    subset = cluster(external("DNS", ENDPOINTS) + rule(subsets=subsets, host=EXT), host=EXT, subset="v1")
    assert addresses(subset) == ["one.example.com"]


def test_clusters_by_dns_without_endpoints_are_left_out() -> None:
    found = clusters(external("DNS", ENDPOINTS) + rule(subsets="[{name: v3, labels: {version: v3}}]", host=EXT))
    assert sorted(n for n in found if EXT in n) == [f"outbound|80||{EXT}"]


def test_dns_passed_through() -> None:
    found = cluster(external("DNS", ENDPOINTS) + rule("{loadBalancer: {simple: PASSTHROUGH}}", host=EXT), host=EXT)
    assert found["type"] == "ORIGINAL_DST"
    assert "loadAssignment" not in found


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
def test_families(ips: tuple[str, ...], environ: dict[str, str], family: str) -> None:
    found = cluster(external("DNS"), host=EXT, by=replace(CLIENT, ips=ips), environ=environ)
    assert found.get("dnsLookupFamily", "AUTO") == family


def test_racing_connections() -> None:
    found = cluster(external("DNS", annotations="{istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT}"), host=EXT)
    assert (found["type"], found["dnsLookupFamily"]) == ("LOGICAL_DNS", "ALL")


def test_another_port_without_endpoints() -> None:
    assert cluster(external("NONE", target=", targetPort: 8080"), host=EXT)["originalDstLbConfig"] == {
        "upstreamPortOverride": 8080
    }
    assert "originalDstLbConfig" not in cluster(external("NONE"), host=EXT)


# -- dynamic DNS -----------------------------------------------------------------------------------------------------------

WILD = "*.example.com"
HTTP2 = {"explicitHttpConfig": {"http2ProtocolOptions": {}}}


@pytest.mark.parametrize(("protocol", "options"), [("HTTP", {}), ("TLS", {}), ("GRPC", HTTP2), ("HTTP2", HTTP2)])
def test_dynamic_dns_by_protocol(protocol: str, options: dict[str, Any]) -> None:
    assert http_options(cluster(external("DYNAMIC_DNS", protocol=protocol, host=WILD), host=WILD)) == options


def test_dynamic_dns() -> None:
    found = cluster(external("DYNAMIC_DNS", host=WILD), host=WILD)
    assert found["lbPolicy"] == "CLUSTER_PROVIDED"
    assert found["clusterType"]["name"] == "envoy.clusters.dynamic_forward_proxy"
    assert found["clusterType"]["typedConfig"]["dnsCacheConfig"] == {
        "name": "*.example.com_dfp_dns_cache",
        "dnsLookupFamily": "V4_ONLY",
    }
    assert "type" not in found
    assert "commonLbConfig" not in found
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
    found = cluster(external("DYNAMIC_DNS", host=WILD) + rule(f"{{tls: {{{tls}}}}}", host=WILD), host=WILD)
    assert http_options(found).get("upstreamHttpProtocolOptions") == options
    assert found["clusterType"]["typedConfig"].get("allowInsecureClusterOptions", False) is insecure


# -- others ----------------------------------------------------------------------------------------------------------------


def test_aliases_have_no_cluster() -> None:
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


def test_draining_endpoints_are_kept_for_their_sessions() -> None:
    label = "labels: {istio.io/persistent-session: c}"
    sticky = "---" + SERVICE.replace(
        "{name: api, namespace: shop, creation", f"{{name: api, namespace: shop, {label}, creation"
    )
    found = cluster(sticky + rule(subsets="[{name: v1}]"))
    assert found["commonLbConfig"]["overrideHostStatus"] == {"statuses": ["HEALTHY", "DRAINING", "UNKNOWN", "DEGRADED"]}


def test_redis() -> None:
    redis = "---" + SERVICE.replace("{name: other, port: 70}", "{name: redis, port: 70}")
    assert cluster(redis, port=70, environ={"PILOT_ENABLE_REDIS_FILTER": "true"})["lbPolicy"] == "MAGLEV"
    assert cluster(redis, port=70)["lbPolicy"] == "LEAST_REQUEST"


def test_fixed_clusters_of_sidecars() -> None:
    found = clusters()
    assert found["BlackHoleCluster"] == {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "BlackHoleCluster",
        "type": "STATIC",
        "connectTimeout": "10s",
        "altStatName": "BlackHoleCluster;",
    }
    outbound, inbound = found["PassthroughCluster"], found["InboundPassthroughCluster"]
    assert (outbound["type"], outbound["lbPolicy"]) == ("ORIGINAL_DST", "CLUSTER_PROVIDED")
    assert http_options(outbound)["commonHttpProtocolOptions"] == {"idleTimeout": "300s"}
    assert "upstreamBindConfig" not in outbound
    assert "filters" not in inbound
    assert "AllowAnyDynamicDNSCluster" not in found
    assert "PassthroughCluster" not in clusters(by=ROUTER)


@pytest.mark.parametrize(
    ("ips", "bound"),
    [(("10.0.0.1",), ["127.0.0.6"]), (("2001:db8::1",), ["::6"]), (("10.0.0.1", "2001:db8::1"), ["127.0.0.6", "::6"])],
)
def test_inbound_passthrough_binds_both_families(ips: tuple[str, ...], bound: list[str]) -> None:
    bind = clusters(by=replace(CLIENT, ips=ips))["InboundPassthroughCluster"]["upstreamBindConfig"]
    assert [
        bind["sourceAddress"]["address"],
        *(a["address"]["address"] for a in bind.get("extraSourceAddresses", ())),
    ] == bound


@pytest.mark.parametrize(
    ("tls", "insecure"), [("", True), ("tls: {mode: DISABLE}", True), ("tls: {mode: SIMPLE}", False)]
)
def test_any_host_by_dynamic_dns(tls: str, insecure: bool) -> None:
    mesh = f"outboundTrafficPolicy: {{mode: ALLOW_ANY_DYNAMIC_DNS{', ' + tls if tls else ''}}}"
    by = replace(CLIENT, metadata={**CLIENT.metadata, "DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "localhost:15053"})
    found = clusters(mesh=mesh, by=by)["AllowAnyDynamicDNSCluster"]
    config = found["clusterType"]["typedConfig"]
    assert config.get("allowInsecureClusterOptions", False) is insecure
    assert config["dnsCacheConfig"]["maxHosts"] == 1024
    resolver = config["dnsCacheConfig"]["typedDnsResolverConfig"]["typedConfig"]["resolvers"]
    assert resolver == [{"socketAddress": {"address": "127.0.0.1", "portValue": 15053}}]
    assert bool(tls_context(found)) is not insecure
    assert ("useDownstreamProtocolConfig" in http_options(found)) is insecure


def test_clusters_routed_to_by_sni() -> None:
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
    found = clusters(gateway + policy + external("DNS") + resolved.replace("name: entry", "name: inner"), by=ROUTER)
    assert "loadAssignment" in found[f"outbound_.80_._.{inner}"]
    routed = found[f"outbound_.80_._.{HOST}"]
    assert (routed["type"], "loadAssignment" in routed) == ("EDS", False)
    assert routed["edsClusterConfig"]["serviceName"] == f"outbound_.80_._.{HOST}"
    assert "transportSocket" not in routed
    assert "transportSocketMatches" not in routed
    assert routed["circuitBreakers"]["thresholds"][0]["maxConnections"] == 3
    assert f"outbound_.80_.v1_.{HOST}" in found
    assert not [n for n in found if n.startswith("outbound_.") and EXT in n]
    assert not [n for n in clusters(by=ROUTER) if n.startswith("outbound_.")]
