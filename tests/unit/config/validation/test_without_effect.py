"""Fields of the mesh config. Each either has an effect or is reported as having none."""

from __future__ import annotations

import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

import pilot
from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_process import build_arguments
from pilot.agent.envoy.proxy_bootstrap import build_proxy_bootstrap
from pilot.config.base import json_name
from pilot.config.mesh.extension_provider import (
    EnvoyExternalAuthorizationGrpcProvider,
    EnvoyExternalAuthorizationHttpProvider,
    ExtensionProvider,
    SkyWalkingTracingProvider,
)
from pilot.config.mesh.mesh_config import CertificateData, ConfigSource, MeshConfig
from pilot.config.mesh.proxy_config import ConnectionSettings, ProxyConfig, RemoteService
from pilot.config.mesh.tracing import Tracing
from pilot.config.validation.without_effect import WITHOUT_EFFECT
from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.xds_types import LISTENER
from testing.mesh.listeners import WEB
from testing.mesh.objects import make, world
from testing.mesh.world import proxy
from testing.rows import Rows
from tests.golden.test_injected_pods import Case, inject_by_webhook
from tests.unit.agent.envoy.test_proxy_bootstrap import make_context
from tests.unit.envoy.plans.test_waypoint_plan import proxy_resources as waypoint_resources
from tests.unit.envoy.plans.test_waypoint_plan import waypoint

ROOT = pathlib.Path(pilot.__file__).parent
# Fields that also exist in DestinationRules, where they take effect.
ELSEWHERE = {("OutlierDetection", "consecutive_errors")}


def structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from structs(argument)


def reachable(
    struct: type[msgspec.Struct], visited: set[type[msgspec.Struct]]
) -> Iterator[tuple[type[msgspec.Struct], str]]:
    """Yield the fields of a message and of its nested messages, except below fields without effect."""
    if struct in visited:
        return
    visited.add(struct)
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        yield struct, field.name
        if field.name not in WITHOUT_EFFECT.get(struct, {}):
            for inner in structs(hints[field.name]):
                yield from reachable(inner, visited)


FIELDS = list(reachable(MeshConfig, set()))
NAMES_READ = {
    name
    for path in (*ROOT.rglob("*.py"), *(ROOT.parent / "webhook").rglob("*.py"))
    if not path.is_relative_to(ROOT / "config")
    for name in re.findall(r"(?<=[.\"])\w+", path.read_text())
}
"""Attribute names and quoted words in the code of pilot, except pilot/config, and of webhook."""


def test_every_field_is_read_or_has_no_effect() -> None:
    with Rows() as rows:
        for struct, field in FIELDS:
            with rows.row(f"{struct.__name__}.{field}"):
                is_listed = field in WITHOUT_EFFECT.get(struct, {}) or (struct.__name__, field) in ELSEWHERE
                assert is_listed or {field, json_name(field)} & NAMES_READ, (
                    "read the field or list it in WITHOUT_EFFECT"
                )


def test_listed_fields_exist() -> None:
    for struct, fields in WITHOUT_EFFECT.items():
        assert fields.keys() <= {f.name for f in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("defaultConfig: {statsdUdpAddress: 'a:1'}", "defaultConfig.statsdUdpAddress"),
        (
            "defaultConfig: {tracing: {openCensusAgent: {address: 'z:1'}}}",
            "defaultConfig.tracing.openCensusAgent",
        ),
        (
            "defaultConfig: {connectionSettings: {listenerConnectionLimit: 3}}",
            "defaultConfig.connectionSettings.listenerConnectionLimit",
        ),
        (
            "extensionProviders: [{name: z, lightstep: {service: z.a.svc.cluster.local, port: 80}}]",
            "extensionProviders[3].lightstep",
        ),
    ],
)
def test_field_without_effect_is_reported(text: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(text)])
    assert config is not None
    assert [(p.code, p.path, str(p.severity)) for p in problems] == [("no-effect", path, "warning")]


def test_tag_without_a_type_is_ignored_alone() -> None:
    spec = (
        "{tracing: [{customTags: {k1: {literal: {value: a}}, k2: {}}}], accessLogging: [{providers: [{name: envoy}]}]}"
    )
    decoded = decode_document(make("Telemetry", "t", spec))
    assert len(decoded.entries) == 1
    path = "spec.tracing[0].customTags[k2]"
    assert [(p.code, p.path, str(p.severity)) for p in decoded.problems] == [("no-effect", path, "warning")]


def test_effective_fields_have_no_problems() -> None:
    assert decode_mesh_config([])[1] == []
    text = "{trustDomain: x.com, defaultConfig: {proxyHeaders: {server: {disabled: true}}}, ingressClass: istio, hboneIdleTimeout: 9s, enableTracing: false}"
    assert decode_mesh_config([yaml.safe_load(text)])[1] == []


# -- effects -----------------------------------------------------------------------------------------------------------------

EFFECTIVE: dict[str, Any] = {
    "configPath": "./etc/other",
    "serviceCluster": "other",
    "tracingServiceName": "CANONICAL_NAME_ONLY",
    "drainDuration": "9s",
    "zipkinAddress": "zipkin.shop:9411",
    "proxyAdminPort": 15300,
    "customConfigFile": "/etc/envoy.json",
    "concurrency": 3,
    "interceptionMode": "TPROXY",
    "tracing": {"zipkin": {"address": "zipkin.shop:9411"}},
    "envoyAccessLogService": {"address": "logs.shop:80"},
    "envoyMetricsService": {"address": "metrics.shop:80"},
    "proxyMetadata": {"ISTIO_META_A": "b"},
    "runtimeValues": {"a": "1"},
    "statusPort": 15320,
    "extraStatTags": ["a"],
    "meshId": "m",
    "proxyStatsMatcher": {"inclusionPrefixes": ["a"]},
    "holdApplicationUntilProxyStarts": True,
    "image": {"imageType": "debug"},
    "fileFlushInterval": "9s",
    "fileFlushMinSizeKb": 9,
    "statsCompression": False,
    "connectionSettings": {"globalDownstreamConnectionLimit": 9},
}
"""Fields of the proxy config that the agent or the injection uses, with a value."""
USED_AT_RUN_TIME = {"binaryPath", "discoveryAddress", "controlPlaneAuthPolicy", "terminationDrainDuration"}
"""Fields that only a running agent uses. tests/unit/agent/test_agent.py starts one."""
OTHER = ", prometheus: {}"
AUTHORIZERS = """
extensionProviders:
- {{name: http, envoyExtAuthzHttp: {{service: authz.a.svc.cluster.local, port: 80{http}}}}}
- {{name: grpc, envoyExtAuthzGrpc: {{service: authz.a.svc.cluster.local, port: 80{grpc}}}}}
- {{name: sky, skywalking: {{service: authz.a.svc.cluster.local, port: 80{sky}}}}}
- {{name: other{other}}}
"""
INEFFECTIVE: dict[type[msgspec.Struct], dict[str, str]] = {
    MeshConfig: {
        "ca": "ca: {address: 'ca.shop:80'}",
        "certificates": "certificates: [{secretName: s, dnsNames: [a.b]}]",
        "verify_certificate_at_client": "verifyCertificateAtClient: true",
    },
    ConfigSource: {
        "subscribed_resources": "configSources: [{address: 'fs:///a', subscribedResources: [SERVICE_REGISTRY]}]"
    },
    CertificateData: {"spiffe_bundle_url": "caCertificates: [{spiffeBundleUrl: 'https://a.b'}]"},
    ProxyConfig: {
        "statsd_udp_address": "defaultConfig: {statsdUdpAddress: 'a:1'}",
        "proxy_bootstrap_template_path": "defaultConfig: {proxyBootstrapTemplatePath: /a}",
        "readiness_probe": "defaultConfig: {readinessProbe: {httpGet: {port: 80}}}",
        "ca_certificates_pem": "defaultConfig: {caCertificatesPem: [a]}",
        "stat_name_length": "defaultConfig: {statNameLength: 99}",
        "discovery_refresh_delay": "defaultConfig: {discoveryRefreshDelay: 9s}",
        "envoy_metrics_service_address": "defaultConfig: {envoyMetricsServiceAddress: 'a:1'}",
        "availability_zone": "defaultConfig: {availabilityZone: a}",
        "sds": "defaultConfig: {sds: {enabled: true}}",
    },
    ConnectionSettings: {
        "cluster_per_connection_buffer_limit_bytes": "defaultConfig: {connectionSettings: {clusterPerConnectionBufferLimitBytes: 9}}",
        "listener_connection_limit": "defaultConfig: {connectionSettings: {listenerConnectionLimit: 9}}",
    },
    RemoteService: {
        "tcp_keepalive": "defaultConfig: {envoyMetricsService: {address: 'a:1', tcpKeepalive: {probes: 9}}}",
    },
    Tracing: {
        "lightstep": "defaultConfig: {tracing: {lightstep: {address: 'a:1', accessToken: b}}}",
        "stackdriver": "defaultConfig: {tracing: {stackdriver: {}}}",
        "open_census_agent": "defaultConfig: {tracing: {openCensusAgent: {address: 'a:1'}}}",
        "tls_settings": "defaultConfig: {tracing: {tlsSettings: {mode: SIMPLE}}}",
    },
    EnvoyExternalAuthorizationHttpProvider: {
        "clear_route_cache": AUTHORIZERS.format(http=", clearRouteCache: true", grpc="", sky="", other=OTHER)
    },
    EnvoyExternalAuthorizationGrpcProvider: {
        "clear_route_cache": AUTHORIZERS.format(http="", grpc=", clearRouteCache: true", sky="", other=OTHER)
    },
    SkyWalkingTracingProvider: {
        "access_token": AUTHORIZERS.format(http="", grpc="", sky=", accessToken: a", other=OTHER)
    },
    ExtensionProvider: {
        "lightstep": AUTHORIZERS.format(
            http="", grpc="", sky="", other=", lightstep: {service: a.b, port: 80, accessToken: c}"
        ),
        "stackdriver": AUTHORIZERS.format(http="", grpc="", sky="", other=", stackdriver: {}"),
        "opencensus": AUTHORIZERS.format(http="", grpc="", sky="", other=", opencensus: {service: a.b, port: 80}"),
    },
}
"""Mesh configs that set one field without effect."""


def agent_outputs(proxy_config: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the bootstrap and the arguments of an agent's Envoy, without the copy of the proxy config."""
    context = make_context(proxy_config)
    bootstrap = build_proxy_bootstrap(context, AgentSettings())
    del bootstrap["node"]["metadata"]["PROXY_CONFIG"]
    return bootstrap, build_arguments(context, AgentSettings())


def injected_pod(mesh: dict[str, Any]) -> Any:
    """Return an injected Pod, without the copy of the proxy config."""
    pod = inject_by_webhook(Case(mesh=mesh), Case().pod())
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        container["env"] = [v for v in container.get("env", ()) if v["name"] != "PROXY_CONFIG"]
    return pod


@pytest.mark.parametrize("field", EFFECTIVE)
def test_field_of_the_proxy_config_has_an_effect(field: str) -> None:
    config = {field: EFFECTIVE[field]}
    assert decode_mesh_config([{"defaultConfig": config}])[1] == []
    changes_agent = agent_outputs({}) != agent_outputs(config)
    assert changes_agent or injected_pod({}) != injected_pod({"defaultConfig": config})


def test_every_field_of_the_proxy_config_is_in_one_list() -> None:
    names = {json_name(field.name) for field in msgspec.structs.fields(ProxyConfig)}
    ineffective = {json_name(name) for name in WITHOUT_EFFECT[ProxyConfig]}
    sent_to_proxies = {"gatewayTopology", "privateKeyProvider", "proxyHeaders"}
    assert names == EFFECTIVE.keys() | USED_AT_RUN_TIME | ineffective | sent_to_proxies
    assert not ineffective & EFFECTIVE.keys()


def test_prometheus_merge_has_an_effect() -> None:
    annotated = Case(annotations={"prometheus.io/port": "80", "prometheus.io/scrape": "true"}).pod()
    merged, separate = (inject_by_webhook(Case(mesh={"enablePrometheusMerge": m}), annotated) for m in (True, False))
    assert merged != separate
    assert decode_mesh_config([{"enablePrometheusMerge": False}])[1] == []


def test_datadog_tracer_has_an_effect() -> None:
    config = {"tracing": {"datadog": {"address": "datadog.shop:8126"}}}
    assert agent_outputs(config) != agent_outputs({})
    assert decode_mesh_config([{"defaultConfig": config}])[1] == []


@pytest.mark.parametrize(
    "mesh",
    ["ingressClass: other", "ingressControllerMode: 'OFF'", "ingressSelector: edge", "ingressService: edge"],
)
def test_field_about_ingresses_has_an_effect(mesh: str) -> None:
    annotations = "{kubernetes.io/ingress.class: istio}"
    rule = "{host: a.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}"
    ingress = make(
        "Ingress", "i", f"{{rules: [{rule}]}}", "a", apiVersion="networking.k8s.io/v1", annotations=annotations
    )
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", "a")

    def gateway_listeners(mesh_config: str) -> set[str]:
        harness = world(ingress, service, mesh_config=mesh_config)
        edge = proxy("router", "edge-0", "istio-system", "10.1.0.7", {"istio": "ingressgateway"})
        return set(harness.resources(harness.connect(edge))[LISTENER])

    assert gateway_listeners("") != gateway_listeners(mesh)
    assert decode_mesh_config([yaml.safe_load(mesh)])[1] == []


def test_idle_timeout_of_tunnels_has_an_effect() -> None:
    mesh = "hboneIdleTimeout: 9s"
    assert waypoint_resources(*waypoint()) != waypoint_resources(*waypoint(), mesh=mesh)
    assert decode_mesh_config([yaml.safe_load(mesh)])[1] == []


@pytest.mark.parametrize(
    ("struct", "field"),
    [pytest.param(s, f, id=f"{s.__name__}.{f}") for s, fields in WITHOUT_EFFECT.items() for f in fields],
)
def test_listed_field_changes_neither_proxies_nor_agents_nor_pods(struct: type[msgspec.Struct], field: str) -> None:
    text = INEFFECTIVE[struct][field]
    plain = yaml.safe_load(text)
    config, problems = decode_mesh_config([plain])
    assert config is not None
    assert "no-effect" in {problem.code for problem in problems}
    basis = yaml.safe_load(AUTHORIZERS.format(http="", grpc="", sky="", other=OTHER))
    basis_text = yaml.safe_dump(basis)
    changed_text = text if "extensionProviders" in plain else basis_text + text
    assert proxy_resources(changed_text) == proxy_resources(basis_text)
    proxy_config = plain.get("defaultConfig", {})
    before = {"envoyMetricsService": {"address": "a:1"}} if struct is RemoteService else {}
    assert agent_outputs(proxy_config) == agent_outputs(before)
    assert injected_pod(plain) == injected_pod({})


def proxy_resources(mesh_config: str) -> Any:
    """Return the resources of a sidecar that uses authorizers and a tracer."""
    ports = "[{name: grpc, port: 80}]"
    objects = [
        make("Service", "authz", f"{{clusterIP: 10.96.0.1, ports: {ports}}}", "a"),
        make("AuthorizationPolicy", "http", "{action: CUSTOM, provider: {name: http}, rules: [{}]}", "a"),
        make("AuthorizationPolicy", "grpc", "{action: CUSTOM, provider: {name: grpc}, rules: [{}]}", "istio-system"),
        make("Telemetry", "t", "{tracing: [{providers: [{name: sky}]}]}", "a"),
    ]
    harness = world(*objects, mesh_config=mesh_config, PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS="true")
    return {
        url: {name: resource.any for name, resource in resources.items()}
        for url, resources in harness.resources(harness.connect(WEB)).items()
    }
