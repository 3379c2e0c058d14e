"""Telemetries merged over mesh, namespace and workload, and their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pilot.config.kinds.istio import TELEMETRY
from pilot.debug.pages.telemetry import LEVELS, proxy_telemetry, telemetryz
from pilot.mesh.model.telemetry_rules import LogRule, MetricOverride, MetricRules, SpanRules
from pilot.mesh.security.policies import proxy_policies
from pilot.mesh.telemetry.telemetry import (
    log_rules,
    metric_rules,
    span_rules,
)
from testing.mesh.debug_server import sources
from testing.mesh.objects import Plain, make, pod, world
from testing.mesh.world import World, proxy

WEB = pod("web-0", "10.1.0.1", labels="{app: web}")
CLIENT = proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"})
PLACES = {"root": ("istio-system", ""), "own": ("a", ""), "web": ("a", "selector: {matchLabels: {app: web}}, ")}
Merged = tuple[tuple[str, str], ...]


def mesh_with(*parts: tuple[str, str], mesh: str = "") -> tuple[World, Any]:
    """Return a mesh with Telemetries at these levels, oldest first, and the keys of those in effect for the workload."""
    harness = world(WEB, *(_telemetry(*part, day) for day, part in enumerate(parts, 1)), mesh_config=mesh)
    return harness, proxy_policies(harness.mesh, harness.connect(CLIENT)).of(TELEMETRY.id.name)


def _telemetry(place: str, spec: str, day: int) -> Plain:
    namespace, selector = PLACES[place]
    return make("Telemetry", f"t{day}", f"{{{selector}{spec}}}", namespace, day)


def to(*names: str, more: str = "") -> str:
    return f"{{providers: [{', '.join(f'{{name: {name}}}' for name in names)}]{', ' + more if more else ''}}}"


# -- selection -------------------------------------------------------------------------------------------------------------


def test_oldest_per_level_and_all_with_a_selector_apply() -> None:
    spec = "tracing: [{}]"
    _, keys = mesh_with(("web", spec), ("own", spec), ("own", spec), ("root", spec), ("root", spec), ("web", spec))
    assert [key.name for key in keys] == ["t4", "t2", "t1", "t6"]


def test_selector_in_the_root_namespace_applies_only_there() -> None:
    harness = world(WEB, make("Telemetry", "t", "{selector: {matchLabels: {app: web}}, tracing: [{}]}", "istio-system"))
    assert proxy_policies(harness.mesh, harness.connect(CLIENT)).of(TELEMETRY.id.name) == ()
    root_proxy = proxy("sidecar", "web-1", "istio-system", "10.1.0.2", {"app": "web"})
    assert [key.name for key in proxy_policies(harness.mesh, harness.connect(root_proxy)).of(TELEMETRY.id.name)] == [
        "t"
    ]


# -- access logs -----------------------------------------------------------------------------------------------------------

FILTER = "filter: {expression: 'true'}"
LOGS: Sequence[tuple[str, Merged, tuple[LogRule, ...]]] = (
    ("SERVER", (), (LogRule("x"),)),
    ("SERVER", (("root", f"accessLogging: [{to('a', 'b')}]"),), (LogRule("a"), LogRule("b"))),
    ("SERVER", (("root", f"accessLogging: [{to('a')}]"), ("own", f"accessLogging: [{to('b')}]")), (LogRule("b"),)),
    ("SERVER", (("root", f"accessLogging: [{to('a', more=FILTER)}]"),), (LogRule("a", "true"),)),
    ("SERVER", (("own", f"accessLogging: [{{{FILTER}}}]"),), (LogRule("x"),)),
    ("SERVER", (("own", "accessLogging: [{disabled: true}]"),), (LogRule("x", disabled=True),)),
    (
        "SERVER",
        (("root", f"accessLogging: [{to('a')}]"), ("web", "accessLogging: [{disabled: true}]")),
        (LogRule("a", disabled=True),),
    ),
    ("SERVER", (("own", f"accessLogging: [{to('a', more='match: {mode: CLIENT}')}]"),), ()),
    ("CLIENT", (("own", f"accessLogging: [{to('a', more='match: {mode: CLIENT}')}]"),), (LogRule("a"),)),
    (
        "CLIENT",
        (("own", f"accessLogging: [{to('a')}, {to('a', more='disabled: true, match: {mode: SERVER}')}]"),),
        (LogRule("a"),),
    ),
    (
        "SERVER",
        (("own", f"accessLogging: [{to('a')}, {to('a', more='disabled: true, match: {mode: SERVER}')}]"),),
        (LogRule("a", disabled=True),),
    ),
    ("SERVER", (("own", f"accessLogging: [{to('a', more=FILTER)}, {to('b')}]"),), (LogRule("a", "true"), LogRule("b"))),
)


@pytest.mark.parametrize(("mode", "parts", "expected"), LOGS)
def test_log_rules(mode: str, parts: Merged, expected: tuple[LogRule, ...]) -> None:
    harness, keys = mesh_with(*parts, mesh="defaultProviders: {accessLogging: [x]}")
    assert log_rules(harness.mesh, keys, mode) == expected


def test_no_log_rules_without_a_default_provider() -> None:
    harness, keys = mesh_with(("own", "accessLogging: [{disabled: true}]"))
    assert log_rules(harness.mesh, keys, "SERVER") == ()


# -- metrics ---------------------------------------------------------------------------------------------------------------

COUNT, SIZE = "match: {metric: REQUEST_COUNT}", "match: {metric: REQUEST_SIZE, mode: SERVER}"
OFF = "overrides: [{disabled: true}]"
METRICS: Sequence[tuple[Merged, tuple[MetricRules, ...], tuple[MetricRules, ...]]] = (
    ((), (), ()),
    ((("root", f"metrics: [{to('p')}]"),), (MetricRules("p"),), (MetricRules("p"),)),
    ((("root", f"metrics: [{to('p')}]"), ("own", f"metrics: [{to('q')}]")), (MetricRules("q"),), (MetricRules("q"),)),
    (
        (
            ("root", f"metrics: [{to('p')}]"),
            ("web", f"metrics: [{{overrides: [{{{SIZE}, disabled: true}}], reportingInterval: 3s}}]"),
        ),
        (MetricRules("p", (MetricOverride("REQUEST_SIZE", True),), 3_000_000_000),),  # type: ignore[arg-type]
        (MetricRules("p", (), 3_000_000_000),),  # type: ignore[arg-type]
    ),
    ((("root", f"metrics: [{to('p', more=OFF)}]"),), (), ()),
    (
        (
            ("root", f"metrics: [{to('p', more=OFF)}]"),
            ("own", f"metrics: [{{overrides: [{{{COUNT}, disabled: false}}]}}]"),
        ),
        (MetricRules("p", (MetricOverride("REQUEST_COUNT"),)),),
        (MetricRules("p", (MetricOverride("REQUEST_COUNT"),)),),
    ),
    (
        (
            (
                "root",
                f"metrics: [{to('p', more=f'overrides: [{{{COUNT}, tagOverrides: {{a: {{value: x}}, b: {{value: y}}}}}}]')}]",
            ),
            ("own", f"metrics: [{{overrides: [{{{COUNT}, tagOverrides: {{a: {{operation: REMOVE}}}}}}]}}]"),
        ),
        (MetricRules("p", (MetricOverride("REQUEST_COUNT", tags=(("a", ""), ("b", "y"))),)),),
        (MetricRules("p", (MetricOverride("REQUEST_COUNT", tags=(("a", ""), ("b", "y"))),)),),
    ),
    ((("own", f"metrics: [{{overrides: [{{{COUNT}, disabled: true}}]}}]"),), (), ()),
)


@pytest.mark.parametrize(("parts", "server", "client"), METRICS)
def test_metric_rules(parts: Merged, server: tuple[MetricRules, ...], client: tuple[MetricRules, ...]) -> None:
    harness, keys = mesh_with(*parts)
    assert metric_rules(harness.mesh, keys, "SERVER") == server
    assert metric_rules(harness.mesh, keys, "CLIENT") == client


def test_default_metric_providers_of_the_mesh() -> None:
    harness, keys = mesh_with(mesh="defaultProviders: {metrics: [q, p]}")
    assert metric_rules(harness.mesh, keys, "SERVER") == (MetricRules("p"), MetricRules("q"))


# -- spans -----------------------------------------------------------------------------------------------------------------

SPANS: Sequence[tuple[str, Merged, SpanRules | None]] = (
    ("", (), None),
    ("defaultProviders: {tracing: [x, y]}", (), SpanRules(provider="x")),
    ("", (("own", "tracing: [{randomSamplingPercentage: 3}]"),), SpanRules(sampling=3.0)),
    (
        "defaultProviders: {tracing: [x]}",
        (
            ("root", f"tracing: [{to('y', 'z', more='randomSamplingPercentage: 3')}]"),
            ("web", "tracing: [{randomSamplingPercentage: 0}]"),
        ),
        SpanRules(provider="y", sampling=0.0),
    ),
    (
        "",
        (
            ("root", f"tracing: [{to('x', more='disableSpanReporting: true')}]"),
            ("own", "tracing: [{disableSpanReporting: false}]"),
        ),
        SpanRules(provider="x"),
    ),
    ("", (("root", f"tracing: [{to('x', more='match: {mode: CLIENT}')}]"),), SpanRules()),
    (
        "",
        (
            (
                "root",
                f"tracing: [{to('x', more='enableIstioTags: false, useRequestIdForTraceSampling: false, disableContextPropagation: true')}]",
            ),
        ),
        SpanRules(provider="x", istio_tags=False, request_id_sampling=False, propagated=False),
    ),
)


@pytest.mark.parametrize(("mesh", "parts", "expected"), SPANS)
def test_span_rules(mesh: str, parts: Merged, expected: SpanRules | None) -> None:
    harness, keys = mesh_with(*parts, mesh=mesh)
    assert span_rules(harness.mesh, keys, "SERVER") == expected


# -- the debug page --------------------------------------------------------------------------------------------------------


def test_telemetryz_lists_all_and_those_of_a_proxy_by_level() -> None:
    harness, _ = mesh_with(("web", "tracing: [{}]"), ("root", f"accessLogging: [{to('a')}]"), ("own", "metrics: [{}]"))
    telemetries = telemetryz(sources(harness.mesh), {}).make()["telemetries"]
    assert {
        namespace: [o["name"] for o in objects]
        for namespace, objects in telemetries["namespace_to_telemetries"].items()
    } == {
        "a": ["t1", "t3"],
        "istio-system": ["t2"],
    }
    by_level = proxy_telemetry(harness.mesh, harness.connect(CLIENT))
    assert [by_level[level]["Name"] for level in LEVELS] == ["t2", "t3", "", "t1"]
    assert (by_level["Metrics"], by_level["Tracing"]) == ([{}], [{}])
    assert [(part["Root"]["Name"], part["Logging"]) for part in by_level["Logging"]] == [
        ("t2", [{"providers": [{"name": "a"}]}])
    ]
