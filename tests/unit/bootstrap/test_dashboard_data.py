"""Data that is recorded for the dashboard."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from pilot.bootstrap.dashboard_data import DashboardData
from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.debug.changes import LISTED
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.batch import Commit
from pilot.ingest.decode import Decoded, Entry
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import MESH_CONFIG
from pilot.xds.push.discovery import Discovery
from testing.mesh.objects import make, world
from testing.mesh.world import rows_of

RULE, KEY = DESTINATION_RULE.table_name, ObjectKey("a", "r")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(ProblemStore())


@pytest.fixture
def data(ledger: Ledger) -> DashboardData:
    mesh, metrics = world().mesh, Metrics()
    return DashboardData(CATALOGUE, ledger, Discovery(mesh, metrics, proxy_plan), metrics)


def rule() -> Object[Any]:
    ((_, row),) = rows_of([make("DestinationRule", "r", "{host: web}", "a")]).items()
    return row


def commit(*edits: tuple[str, Any, Any], **events: int) -> Commit:
    return Commit([], list(edits), 1, 0.0, 0.0, Counter({(RULE, name): count for name, count in events.items()}), 0.0)


def test_changed_object_has_its_source(data: DashboardData, ledger: Ledger) -> None:
    row = rule()
    ledger.source(0, "mesh").replace("/mesh/a.yaml", [Decoded((Entry(RULE, KEY, row),))])
    data.on_change(7, commit((RULE, KEY, row), add=1), 3)
    (change,) = data.changes
    assert (change.number, change.total, change.endpoints, change.proxies) == (7, 1, 0, 3)
    assert change.objects == [
        ("add", "networking.istio.io", "DestinationRule", "a", "r", "/mesh/a.yaml", 0, "", ()),
    ]
    assert data.document_of(row.ref, "Kubernetes") == "/mesh/a.yaml"
    assert data.document_of(row.ref._replace(name="other"), "Kubernetes") == ""


@pytest.mark.parametrize(
    ("row", "events", "action"),
    [
        (True, {"add": 1}, "add"),
        (True, {"update": 1}, "update"),
        (True, {"add": 1, "update": 1}, "change"),
        (False, {"delete": 1, "add": 1}, "delete"),
    ],
)
def test_action_on_an_object(data: DashboardData, row: bool, events: dict[str, int], action: str) -> None:
    data.on_change(1, commit((RULE, KEY, rule() if row else None), **events), 0)
    (change,) = data.changes
    assert [changed.action for changed in change.objects] == [action]


def test_endpoints_are_named_after_other_objects(data: DashboardData) -> None:
    slices = [(ENDPOINT_SLICE.table_name, RegistryKey("c", "a", "web-0"), None)]
    data.on_change(1, commit(*slices, (RULE, KEY, None)), 0)
    (change,) = data.changes
    assert [o.name for o in change.objects] == ["r", "web-0"]
    assert (change.total, change.endpoints) == (1, 1)


def test_objects_of_a_change_are_limited(data: DashboardData) -> None:
    pods = [(POD.table_name, RegistryKey("c", "a", str(n)), None) for n in range(3)]
    rules = [(RULE, ObjectKey("a", str(n)), None) for n in range(LISTED + 5)]
    data.on_change(1, commit(*pods, *rules, (MESH_CONFIG, "mesh", None)), 0)
    (change,) = data.changes
    assert (len(change.objects), change.total, change.endpoints) == (LISTED, LISTED + 6, 3)


def test_rows_that_nobody_writes_are_not_recorded(data: DashboardData) -> None:
    data.on_change(1, commit(("AllocatedAddress", "x", 1)), 0)
    assert list(data.changes) == []


def test_changed_object_has_the_fields_that_differ(data: DashboardData) -> None:
    former, row = rule(), rule()
    row = msgspec.structs.replace(row, spec=msgspec.structs.replace(row.spec, host="shop"))
    data.on_change(8, commit((RULE, KEY, row), update=1)._replace(former={(RULE, KEY): former}), 3)
    (change,) = data.changes
    assert [tuple(field) for field in change.objects[0].fields] == [("spec.host", "web", "shop")]
