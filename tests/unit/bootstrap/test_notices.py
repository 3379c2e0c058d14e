"""Metrics and logs of configuration changes and rejected objects."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from pilot.bootstrap.notices import ChangeReporter, report_failure
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY, VIRTUAL_SERVICE
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import Database, derived
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.batch import Commit
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.analysis.mesh import MESH, mesh_problems
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.discovery import Discovery
from testing.mesh.clock import VirtualClock
from testing.mesh.world import World

GATEWAY = ObjectRef(GroupKind("networking.istio.io", "Gateway"), "shop", "front")
REJECTED = Problem(code="bad-port", object=GATEWAY, message="70000 is no port")


class StillClock:
    def time(self) -> float:
        return 0.0


def rejection_lines(problem: Problem) -> list[str]:
    metrics, mesh = Metrics(), Mesh()
    ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock()).on_problem(problem)  # type: ignore[arg-type]
    return [
        line for line in metrics.exposition().decode().splitlines() if line.startswith("pilot_total_rejected_configs{")
    ]


def test_rejected_object_is_counted_by_kind_and_name() -> None:
    assert rejection_lines(REJECTED) == ['pilot_total_rejected_configs{name="shop/front",type="gateway"} 1']
    assert rejection_lines(replace(REJECTED, object=GATEWAY._replace(namespace=""))) == [
        'pilot_total_rejected_configs{name="front",type="gateway"} 1'
    ]


def test_warning_is_not_a_rejection() -> None:
    assert rejection_lines(replace(REJECTED, severity=Severity.WARNING)) == []


def test_unreadable_file_is_not_a_rejection() -> None:
    assert rejection_lines(replace(REJECTED, object=ObjectRef(), file="a.yaml")) == []


def test_missing_provider_service_is_counted_by_type() -> None:
    service = "{service: none.test, port: 1}"
    providers = (
        f"{{name: z, zipkin: {service}}}, {{name: f, envoyFileAccessLog: {{}}}}, {{name: l, envoyHttpAls: {service}}}"
    )
    mesh = World(f"extensionProviders: [{providers}]").mesh
    metrics = Metrics()
    notices = ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock())  # type: ignore[arg-type]
    for problem in (
        *mesh_problems(mesh, MESH),
        replace(REJECTED, code="service-not-found", path="extensionProviders[0]"),
    ):
        notices.on_problem(problem)
    lines = sorted(
        line
        for line in metrics.exposition().decode().splitlines()
        if line.startswith("provider_lookup_cluster_failures")
    )
    assert lines == [f'provider_lookup_cluster_failures{{type="{kind}"}} 1' for kind in ("envoyHTTPAls", "zipkin")]


# -- changes -----------------------------------------------------------------------------------------------------------

ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: shop}
spec: {hosts: [one.example.com, two.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: routes, namespace: shop}
spec: {hosts: [one.example.com], http: [{route: [{destination: {host: one.example.com}}]}]}
"""


class RecordingDiscovery(Discovery):
    """Discovery that records each wake-up, which concerns three proxies."""

    def __init__(self, mesh: Mesh, metrics: Metrics) -> None:
        super().__init__(mesh, metrics, proxy_plan)
        self.wakes: list[tuple[Any, ...]] = []

    def wake(self, reached: Any, reasons: Any, event: int = 0, age: float = 0.0) -> int:
        self.wakes.append((reached, dict(reasons), event))
        return 3


class TracedChanges:
    def __init__(self) -> None:
        self.commits: list[tuple[int, Commit, int]] = []

    def on_commit(self, event: int, commit: Commit, woken: int) -> None:
        self.commits.append((event, commit, woken))


def test_commit_is_logged_counted_and_wakes_proxies(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    world, metrics, clock, traces = World(), Metrics(), VirtualClock(), TracedChanges()
    world.apply(ENTRY)
    discovery = RecordingDiscovery(world.mesh, metrics)
    notices = ChangeReporter(world.mesh, discovery, metrics, clock, traces)  # type: ignore[arg-type]
    edits: Any = [
        (VIRTUAL_SERVICE.table_name, ("shop", "routes"), object()),
        (SERVICE_ENTRY.table_name, ("shop", "one"), object()),
    ]
    events: Any = Counter({(VIRTUAL_SERVICE.table_name, "add"): 2, (SERVICE_ENTRY.table_name, "update"): 1})
    nodes: Any = ["some nodes"]
    first = Commit(nodes, edits, 5, clock.now - 2.0, clock.now - 0.25, events, 0.004)
    notices.on_commit(first)
    clock.advance(1.5)
    second = Commit([], [("MeshConfig", "mesh", object())], 1, clock.now - 0.5, clock.now - 0.125, Counter(), 0.0)
    notices.on_commit(second)
    version = discovery.version
    assert caplog.messages == [
        "Push debounce stable[1] 5 for config ServiceEntry/shop/one and 1 more configs: 0.250s since last change, forced=false",
        f"XDS: Pushing Services:2 ConnectedEndpoints:3 Version:{version}",
        "Push debounce stable[2] 1 for config MeshConfig/mesh: 0.125s since last change, 1.500s since last push, forced=true",
        f"XDS: Pushing Services:2 ConnectedEndpoints:3 Version:{version}",
    ]
    assert [record.fields for record in caplog.records] == [{"event": 1}, {"event": 1}, {"event": 2}, {"event": 2}]  # type: ignore[attr-defined]
    assert discovery.wakes == [(["some nodes"], {"config": 1, "service": 1}, 1), ([], {"global": 1}, 2)]
    assert traces.commits == [(1, first, 3), (2, second, 3)]
    lines = metrics.exposition().decode().splitlines()
    assert {
        "pilot_services 2",
        "pilot_virt_services 1",
        "pilot_debounce_time_count 2",
        "pilot_debounce_time_sum 2.5",
        "pilot_pushcontext_init_seconds_count 2",
        "pilot_pushcontext_init_seconds_sum 0.004",
        'pilot_inbound_updates{type="config"} 2',
        'pilot_k8s_cfg_events{event="add",type="VirtualService"} 2',
        'pilot_k8s_cfg_events{event="update",type="ServiceEntry"} 1',
    } <= set(lines)


def test_empty_commit_reports_no_services(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    mesh, metrics = Mesh(), Metrics()
    ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock()).on_commit(
        Commit([], [], 0, 0.0, 0.0, Counter(), 0.0)
    )
    assert caplog.messages[0] == "Push debounce stable[1] 0 for config nothing: 0.000s since last change, forced=false"
    assert caplog.messages[1].startswith("XDS: Pushing Services:0 ConnectedEndpoints:0 Version:")


def test_failed_derivation_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    @derived
    def broken(db: Database, key: str) -> int:
        return len(key)

    mesh, metrics = Mesh(), Metrics()
    node = mesh.watch(broken, "why")
    report_failure(metrics, node, ZeroDivisionError("reason"))
    assert f'pilot_derivation_failures{{derivation="{node.fn}"}} 1' in metrics.exposition().decode().splitlines()
    [record] = caplog.records
    assert record.getMessage() == f"cannot derive {node.key!r}"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_problem_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rejection_lines(REJECTED)
    assert len(caplog.messages) == 1
    assert "70000 is no port" in caplog.text
