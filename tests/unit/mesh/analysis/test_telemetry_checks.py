"""Problems between Telemetries, providers, workloads and proxies: for each, objects that cause it and objects that resolve it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from pilot.config.problem import Severity
from testing.mesh.objects import Plain, make, pod, world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy, rows_of

MESH = """
extensionProviders:
- {name: zip, zipkin: {service: zipkin.obs.svc.cluster.local, port: 9411}}
- {name: file, envoyFileAccessLog: {path: /dev/stdout}}
- {name: old, lightstep: {service: zipkin.obs.svc.cluster.local, port: 9411}}
- {name: bad, envoyFileAccessLog: {logFormat: {text: '%NEVER%'}}}
"""
COLLECTOR = make("Service", "zipkin", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 9411}]}", "obs")
ELSEWHERE = make("Service", "zipkin", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", "obs")
OTHER = pod("other-0", "10.1.0.8", "obs", labels="{app: other}")
WEB = pod("web-0", "10.1.0.1", labels="{app: web}")
API = pod("api-0", "10.1.0.2", labels="{app: api}")
STOCK = frozenset(("envoy.config.trace.v3.ZipkinConfig", "envoy.extensions.access_loggers.file.v3.FileAccessLog"))


def telemetry(spec: str, name: str = "t", namespace: str = "a", day: int = 3) -> Plain:
    return make("Telemetry", name, f"{{{spec}}}", namespace, day)


class Row(NamedTuple):
    code: str
    path: str
    causes: tuple[Plain, ...]
    fixes: tuple[Plain, ...]


SPANS = "tracing: [{providers: [{name: zip}]}]"
ROWS = [
    Row(
        "provider-not-found",
        "spec.tracing[0].providers[0].name",
        (telemetry("tracing: [{providers: [{name: ghost}]}]"),),
        (telemetry(SPANS),),
    ),
    Row(
        "provider-not-found",
        "spec.accessLogging[1].providers[1].name",
        (telemetry("accessLogging: [{providers: [{name: file}]}, {providers: [{name: FILE}, {name: none}]}]"),),
        (telemetry("accessLogging: [{providers: [{name: FILE}]}]"),),
    ),
    Row(
        "provider-not-found",
        "spec.accessLogging[0].providers[0].name",
        (telemetry("accessLogging: [{providers: [{name: bad}]}]"),),
        (telemetry("accessLogging: [{providers: [{name: file}]}]"),),
    ),
    Row(
        "bad-provider",
        "spec.tracing[0].providers[0].name",
        (telemetry("tracing: [{providers: [{name: prometheus}]}]"),),
        (telemetry(SPANS),),
    ),
    Row(
        "bad-provider",
        "spec.tracing[0].providers[0].name",
        (telemetry("tracing: [{providers: [{name: old}]}]"),),
        (telemetry(SPANS),),
    ),
    Row(
        "bad-provider",
        "spec.metrics[0].providers[0].name",
        (telemetry("metrics: [{providers: [{name: file}]}]"),),
        (telemetry("metrics: [{providers: [{name: prometheus}]}]"),),
    ),
    Row(
        "provider-not-set",
        "spec.metrics[0]",
        (telemetry("metrics: [{reportingInterval: 5s}]"),),
        (telemetry("metrics: [{providers: [{name: prometheus}]}]", "r", "istio-system"),),
    ),
    Row(
        "provider-not-set",
        "spec.accessLogging[0]",
        (telemetry("accessLogging: [{disabled: true}]"),),
        (telemetry("accessLogging: [{providers: [{name: file}]}]", "r", "istio-system"),),
    ),
    Row(
        "policy-shadowed",
        "spec",
        (telemetry(SPANS, "first", day=1), telemetry(SPANS)),
        (telemetry(f"selector: {{matchLabels: {{app: web}}}}, {SPANS}"), WEB),
    ),
    Row(
        "telemetry-overlap",
        "spec.selector",
        (
            telemetry(f"selector: {{matchLabels: {{app: web}}}}, {SPANS}", "first", day=1),
            telemetry(f"selector: {{matchLabels: {{app: web}}}}, {SPANS}"),
            WEB,
        ),
        (telemetry(f"selector: {{matchLabels: {{app: api}}}}, {SPANS}", "first", day=1), API),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (telemetry(f"selector: {{matchLabels: {{app: web}}}}, {SPANS}"),),
        (WEB,),
    ),
    Row(
        "selector-without-workloads",
        "spec.selector",
        (telemetry(f"selector: {{matchLabels: {{app: web}}}}, {SPANS}", namespace="istio-system"), WEB),
        (telemetry(SPANS, namespace="istio-system"),),
    ),
    Row(
        "target-not-found",
        "spec.targetRefs[0].name",
        (telemetry(f"targetRefs: [{{group: gateway.networking.k8s.io, kind: Gateway, name: gw}}], {SPANS}"),),
        (pod("gw-0", "10.1.0.2", labels="{gateway.networking.k8s.io/gateway-name: gw}"),),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code}-{row.path}")
def test_problem_is_reported_until_resolved(row: Row) -> None:
    harness = world(COLLECTOR, OTHER, mesh_config=MESH)
    assert problems_of(harness) == ()
    harness.set(rows_of(row.causes))
    assert [(p.code, p.path) for p in problems_of(harness)] == [(row.code, row.path)]
    harness.set(rows_of(row.fixes))
    assert problems_of(harness) == ()


def test_collector_without_the_port_is_reported_on_provider_and_telemetry() -> None:
    harness = world(ELSEWHERE, telemetry(SPANS), mesh_config=MESH)
    assert {(p.code, p.path) for p in problems_of(harness)} == {
        ("service-not-found", "extensionProviders[3]"),
        ("service-not-found", "spec.tracing[0].providers[0].name"),
    }
    harness.set(rows_of((COLLECTOR,)))
    assert problems_of(harness) == ()


def test_extensions_missing_from_proxies_are_reported_once_per_namespace() -> None:
    logs = "accessLogging: [{providers: [{name: file}], filter: {expression: 'true'}}]"
    harness = world(COLLECTOR, telemetry(f"metrics: [{{providers: [{{name: prometheus}}]}}], {logs}"), mesh_config=MESH)
    harness.connect(proxy("sidecar", "own-0", "a", "10.1.0.1"))
    assert problems_of(harness) == ()
    for number in range(3):
        harness.connect(replace(proxy("sidecar", f"stock-{number}", "a", f"10.1.0.{5 + number}"), extensions=STOCK))
    harness.connect(replace(proxy("sidecar", "far-0", "far", "10.1.0.9"), extensions=STOCK))
    problems = problems_of(harness)
    assert [(p.code, p.path, p.severity) for p in problems] == [
        ("left-out", "spec.metrics[0]", Severity.INFO),
        ("left-out", "spec.accessLogging[0]", Severity.INFO),
    ]
    assert "proxies in a do not support istio.stats" in problems[0].message


def test_disabled_context_propagation_requires_a_recent_proxy() -> None:
    harness = world(COLLECTOR, telemetry(f"{SPANS[:-2]}, disableContextPropagation: true}}]"), mesh_config=MESH)
    harness.connect(replace(proxy("sidecar", "new-0", "a", "10.1.0.1"), version="1.30.0"))
    assert problems_of(harness) == ()
    harness.connect(replace(proxy("sidecar", "old-0", "a", "10.1.0.2"), version="1.20.0"))
    assert [(p.code, p.path) for p in problems_of(harness)] == [("left-out", "spec.tracing[0]")]


def test_header_from_an_unset_variable_is_reported() -> None:
    mesh = MESH.replace(
        "port: 9411}}\n- {name: file", "port: 9411, headers: [{name: x-token, envName: TOKEN}]}}\n- {name: file"
    )
    harness = world(COLLECTOR, mesh_config=mesh)
    assert [(p.code, p.path) for p in problems_of(harness)] == [("no-variable", "extensionProviders[3]")]
