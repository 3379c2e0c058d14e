"""What is counted and logged when configuration changes, and when an object is wrong."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from pilot.bootstrap.notices import ChangeReporter
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY, VIRTUAL_SERVICE
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import Database, derived
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.batch import Commit
from pilot.lib.metrics import Metrics
from pilot.mesh.analysis.mesh import MESH, mesh_problems
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.discovery import Discovery
from testing.mesh.clock import VirtualClock
from testing.mesh.world import World

GATEWAY = ObjectRef(GroupKind("networking.istio.io", "Gateway"), "shop", "front")
REFUSED = Problem(code="bad-port", object=GATEWAY, message="70000 is no port")


class StillClock:
    def time(self) -> float:
        return 0.0


def counted(problem: Problem) -> list[str]:
    metrics, mesh = Metrics(), Mesh()
    ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock()).on_problem(problem)  # type: ignore[arg-type]
    return [
        line for line in metrics.exposition().decode().splitlines() if line.startswith("pilot_total_rejected_configs{")
    ]


def test_an_object_that_is_refused_is_counted_by_kind_and_name() -> None:
    assert counted(REFUSED) == ['pilot_total_rejected_configs{name="shop/front",type="gateway"} 1']
    assert counted(replace(REFUSED, object=GATEWAY._replace(namespace=""))) == [
        'pilot_total_rejected_configs{name="front",type="gateway"} 1'
    ]


def test_a_warning_refuses_nothing_and_is_not_counted() -> None:
    assert counted(replace(REFUSED, severity=Severity.WARNING)) == []


def test_a_file_that_cannot_be_read_names_no_object_and_is_not_counted() -> None:
    assert counted(replace(REFUSED, object=ObjectRef(), file="a.yaml")) == []


def test_a_provider_whose_service_is_not_there_is_counted_by_its_type() -> None:
    named = "{service: none.test, port: 1}"
    providers = (
        f"{{name: z, zipkin: {named}}}, {{name: f, envoyFileAccessLog: {{}}}}, {{name: l, envoyHttpAls: {named}}}"
    )
    mesh = World(f"extensionProviders: [{providers}]").mesh
    metrics = Metrics()
    notices = ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock())  # type: ignore[arg-type]
    for problem in (
        *mesh_problems(mesh, MESH),
        replace(REFUSED, code="service-not-found", path="extensionProviders[0]"),
    ):
        notices.on_problem(problem)
    found = sorted(
        line
        for line in metrics.exposition().decode().splitlines()
        if line.startswith("provider_lookup_cluster_failures")
    )
    assert found == [f'provider_lookup_cluster_failures{{type="{kind}"}} 1' for kind in ("envoyHTTPAls", "zipkin")]


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


class Waking(Discovery):
    """Tells what it was woken with; each change concerns three proxies."""

    def __init__(self, mesh: Mesh, metrics: Metrics) -> None:
        super().__init__(mesh, metrics, proxy_plan)
        self.woken: list[tuple[Any, ...]] = []

    def wake(self, reached: Any, reasons: Any, event: int = 0) -> int:
        self.woken.append((reached, dict(reasons), event))
        return 3


class TracedChanges:
    def __init__(self) -> None:
        self.told: list[tuple[int, Commit, int]] = []

    def on_commit(self, event: int, commit: Commit, woken: int) -> None:
        self.told.append((event, commit, woken))


def test_a_change_is_numbered_logged_counted_and_wakes_proxies(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    world, metrics, clock, traces = World(), Metrics(), VirtualClock(), TracedChanges()
    world.apply(ENTRY)
    discovery = Waking(world.mesh, metrics)
    notices = ChangeReporter(world.mesh, discovery, metrics, clock, traces)  # type: ignore[arg-type]
    edits: Any = [
        (VIRTUAL_SERVICE.table_name, ("shop", "routes"), object()),
        (SERVICE_ENTRY.table_name, ("shop", "one"), object()),
    ]
    events: Any = Counter({(VIRTUAL_SERVICE.table_name, "add"): 2, (SERVICE_ENTRY.table_name, "update"): 1})
    hit: Any = ["some nodes"]
    first = Commit(hit, edits, 5, clock.now - 2.0, clock.now - 0.25, events, 0.004)
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
    assert discovery.woken == [(["some nodes"], {"config": 1, "service": 1}, 1), ([], {"global": 1}, 2)]
    assert traces.told == [(1, first, 3), (2, second, 3)]
    shown = metrics.exposition().decode().splitlines()
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
    } <= set(shown)


def test_before_there_are_services_none_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    mesh, metrics = Mesh(), Metrics()
    ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock()).on_commit(
        Commit([], [], 0, 0.0, 0.0, Counter(), 0.0)
    )
    assert caplog.messages[0] == "Push debounce stable[1] 0 for config nothing: 0.000s since last change, forced=false"
    assert caplog.messages[1].startswith("XDS: Pushing Services:0 ConnectedEndpoints:0 Version:")


def test_what_cannot_be_derived_is_counted_by_its_name_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    @derived
    def broken(db: Database, key: str) -> int:
        return len(key)

    mesh, metrics = Mesh(), Metrics()
    node = mesh.watch(broken, "why")
    ChangeReporter(mesh, Discovery(mesh, metrics, proxy_plan), metrics, StillClock()).on_failure(
        node, ZeroDivisionError("reason")
    )
    assert f'pilot_derivation_failures{{derivation="{node.fn}"}} 1' in metrics.exposition().decode().splitlines()
    [record] = caplog.records
    assert record.getMessage() == f"cannot derive {node.key!r}"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_a_problem_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    counted(REFUSED)
    assert len(caplog.messages) == 1
    assert "70000 is no port" in caplog.text
