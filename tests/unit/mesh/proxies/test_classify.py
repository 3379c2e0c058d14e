"""Facets of a proxy: the parts of its node metadata that generated configuration depends on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.tracing.request_tracing import RequestTracing, build_request_tracing
from pilot.lib.duration import Duration
from pilot.mesh.gateways.gateways import service_ports
from pilot.mesh.model.facets import FeaturesFacet, SecretServersFacet, SpanTagsFacet
from pilot.mesh.proxies.classify import (
    features_of,
    listening_facet,
    outbound_facet,
    outbound_listeners_facet,
    span_tags_facet,
)
from pilot.mesh.security.policies import policy_label_keys
from testing.mesh.listeners import WEB_POD, service
from testing.mesh.objects import make, world
from testing.mesh.world import World, proxy

LABELS = {"app": "web", "version": "v1", "team": "red"}


def connect(
    *objects: Any, kind: str = "sidecar", ips: tuple[str, ...] = ("10.9.0.1",), **metadata: Any
) -> tuple[World, str]:
    harness = world(*objects)
    return harness, harness.connect(replace(proxy(kind, "web-0", "a", ips[0], LABELS, **metadata), ips=ips))


@pytest.mark.parametrize("metadata", [{}, {"credential": "true"}, {"file-credential": "true"}, {"credential": "false"}])
def test_secret_servers_announced_by_a_proxy(metadata: dict[str, str]) -> None:
    harness, node = connect(**metadata)
    expected = SecretServersFacet(credentials=metadata.get("credential") == "true", files="file-credential" in metadata)
    assert outbound_facet(harness.mesh, node).secret_servers == expected


def test_router_service_ports_include_udp() -> None:
    both = service("web", "[{name: https, port: 443}, {name: quic, port: 443, protocol: UDP}]")
    harness, node = connect(both, WEB_POD, kind="router", ips=("10.1.0.1",))
    assert [(target.number, target.udp) for target in service_ports(harness.mesh, node)] == [(443, False), (443, True)]


def test_unused_labels_are_not_in_the_facet() -> None:
    harness, node = connect()
    assert outbound_facet(harness.mesh, node).labels == frozenset()


@pytest.mark.parametrize(
    ("config", "outbound"),
    [
        (make("DestinationRule", "d", "{host: x, workloadSelector: {matchLabels: {app: web}}}"), {"app"}),
        (make("DestinationRule", "d", "{host: x, workloadSelector: {matchLabels: {app: web}}}", "b"), set()),
        (
            make(
                "VirtualService",
                "v",
                "{hosts: [x], tcp: [{match: [{sourceLabels: {team: x}}], route: [{destination: {host: x}}]}]}",
            ),
            {"team"},
        ),
        (make("PeerAuthentication", "p", "{selector: {matchLabels: {version: v1}}}"), set()),
    ],
)
def test_labels_used_by_configuration_are_in_the_facet(config: Any, outbound: set[str]) -> None:
    harness, node = connect(config)
    assert {k for k, _ in outbound_facet(harness.mesh, node).labels} == outbound


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        (make("PeerAuthentication", "p", "{selector: {matchLabels: {version: v1}}}"), {"version"}),
        (make("PeerAuthentication", "p", "{selector: {matchLabels: {version: v1}}}", "b"), set()),
        (make("RequestAuthentication", "p", "{selector: {matchLabels: {team: x}}}", "istio-system"), {"team"}),
        (make("RequestAuthentication", "p", "{}"), set()),
    ],
)
def test_policy_label_keys_come_from_the_namespace_and_the_root(policy: Any, keys: set[str]) -> None:
    assert policy_label_keys(world(policy).mesh, "a") == keys


def test_equivalent_proxies_have_equal_facets() -> None:
    harness, node = connect(service("web", "[{name: http, port: 80}]"), WEB_POD)
    other = harness.connect(proxy("sidecar", "web-1", "a", "10.9.0.2", {"app": "web", "team": "blue"}))
    assert outbound_listeners_facet(harness.mesh, node) == outbound_listeners_facet(harness.mesh, other)


@pytest.mark.parametrize(
    ("metadata", "field", "value"),
    [
        ({}, "interception", "REDIRECT"),
        ({"INTERCEPTION_MODE": "TPROXY"}, "interception", "TPROXY"),
        ({"INTERCEPTION_MODE": "what"}, "interception", "REDIRECT"),
        ({"HTTP10": "1"}, "http10", True),
        ({"HTTP10": "true"}, "http10", False),
        ({"IDLE_TIMEOUT": "1m"}, "idle_timeout", Duration.of(60)),
        ({"IDLE_TIMEOUT": "soon"}, "idle_timeout", None),
        ({"HTTP_PROXY_PORT": "15002"}, "http_proxy_port", 15002),
        ({"HTTP_PROXY_PORT": "x"}, "http_proxy_port", None),
        ({"HTTP_PROXY_PORT": "99999"}, "http_proxy_port", None),
        ({"IDLE_TIMEOUT": "-1s"}, "idle_timeout", None),
        ({"DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "[::1]:99999"}, "dns_proxy", "::1:15053"),
        ({"DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "my.dns:53"}, "dns_proxy", "127.0.0.1:53"),
        ({"UNPRIVILEGED_POD": "true"}, "unprivileged", True),
        ({"OUTBOUND_LISTENER_EXACT_BALANCE": "true"}, "exact_balance", True),
        ({"ENVOY_STATUS_PORT": 15021, "ENVOY_PROMETHEUS_PORT": 15090.0}, "reserved_ports", frozenset((15021, 15090))),
        ({"ENVOY_SECURE_METRICS_PORT": 0}, "reserved_ports", frozenset()),
        ({"DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "localhost:15053"}, "dns_proxy", "127.0.0.1:15053"),
        ({"DNS_PROXY_ADDR": "localhost:15053"}, "dns_proxy", ""),
        ({"PROXY_CONFIG": {"connectionSettings": {"httpIdleTimeout": "no"}}}, "idle_timeout", None),
    ],
)
def test_listening_facet(metadata: dict[str, Any], field: str, value: Any) -> None:
    harness, node = connect(**metadata)
    assert getattr(listening_facet(harness.mesh, node), field) == value


def test_listening_facet_address_families() -> None:
    harness, node = connect(ips=("fd00::1",))
    facet = listening_facet(harness.mesh, node)
    assert (facet.ipv4, facet.ipv6) == (False, True)


def test_span_tags_facet() -> None:
    harness = world()
    labels = {"service.istio.io/canonical-name": "shop", "service.istio.io/canonical-revision": "v7"}
    facet = span_tags_facet(harness.mesh, harness.connect(proxy("sidecar", "x", "a", "10.9.0.1", labels, MESH_ID=None)))
    assert (facet.service, facet.revision, facet.namespace, facet.mesh_id) == ("shop", "v7", "a", "unknown")


def test_invalid_tracing_settings_are_dropped() -> None:
    custom = {"": {"literal": {"value": "x"}}, "a": {"literal": {"value": ""}}, "b": {"header": {"name": "x"}}}
    harness, node = connect(PROXY_CONFIG={"tracing": {"sampling": -5, "customTags": custom}})
    tracing = listening_facet(harness.mesh, node).tracing
    assert tracing.sampling == 1.0
    spans = build_request_tracing(RequestTracing(tags=tracing.tags, istio_tags=False), SpanTagsFacet())
    assert [t.tag for t in spans.tracing.custom_tags] == ["b"]


NO_FEATURES = FeaturesFacet(**dict.fromkeys(FeaturesFacet.__struct_fields__, False))


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        (None, FeaturesFacet()),
        ({"envoy.filters.http.router"}, NO_FEATURES),
        ({"istio.alpn"}, replace(NO_FEATURES, alpn=True)),
        (
            {"envoy.tcp.metadataexchange.config.MetadataExchange", "envoy.filters.network.mysql_proxy"},
            replace(NO_FEATURES, metadata_exchange=True, mysql_proxy=True),
        ),
    ],
)
def test_features_of_registered_extensions(extensions: set[str] | None, expected: FeaturesFacet) -> None:
    web = proxy("sidecar", "web", "a", "10.9.0.1", {})
    assert features_of(replace(web, extensions=frozenset(extensions) if extensions is not None else None)) == expected


@pytest.mark.parametrize("flag", ["true", None])
def test_internal_listeners_require_the_bootstrap_extension(flag: str | None) -> None:
    web = proxy("sidecar", "web", "a", "10.9.0.1", {}, INTERNAL_LISTENERS=flag)
    assert features_of(web).internal_listeners
    assert features_of(
        replace(web, extensions=frozenset(("envoy.bootstrap.internal_listener",)))
    ).internal_listeners is (flag == "true")


@pytest.mark.parametrize(("kind", "types"), [("sidecar", 5), ("router", 4), ("waypoint", 4), ("ztunnel", 0)])
def test_plans_by_kind(kind: str, types: int) -> None:
    harness, node = connect(kind=kind)
    assert len(proxy_plan(harness.mesh, node).groups) == types
    assert not harness.failures


def test_disconnected_proxy_has_no_plan() -> None:
    assert proxy_plan(world().mesh, "sidecar~1.1.1.1~x.a~a.svc.cluster.local").groups == {}


@pytest.mark.parametrize(
    ("labels", "crosses"),
    [
        ({"gateway.istio.io/managed": "istio.io-gateway-controller"}, True),
        ({"istio": "ingressgateway"}, True),
        ({"istio": "egressgateway"}, False),
        ({"gateway.istio.io/managed": "istio.io-mesh-controller"}, False),
        ({}, False),
    ],
)
def test_ingress_gateways_use_double_hbone_when_enabled(labels: dict[str, str], crosses: bool) -> None:
    on = {
        "PILOT_ENABLE_AMBIENT": "true",
        "AMBIENT_ENABLE_MULTI_NETWORK": "true",
        "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "true",
    }
    edge = proxy("router", "edge-0", "b", "10.1.0.7", labels)
    for environ, expected in ((on, crosses), ({**on, "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "false"}, False)):
        harness = world(**environ)
        assert outbound_facet(harness.mesh, harness.connect(edge)).double_hbone is expected
