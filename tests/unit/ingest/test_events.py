"""Metrics of object events."""

from __future__ import annotations

from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, SERVICE
from pilot.ingest.batch import Commit, Event
from pilot.ingest.events import count_events, count_updates
from pilot.lib.build_info import BuildInfo
from pilot.lib.metrics.metrics import Metrics


def test_events_are_counted_by_kind() -> None:
    metrics = Metrics(BuildInfo())
    events: dict[tuple[str, Event], int] = {
        (VIRTUAL_SERVICE.table_name, "add"): 2,
        (VIRTUAL_SERVICE.table_name, "delete"): 1,
        ("MeshConfig", "add"): 1,
    }
    events |= {(SERVICE.table_name, "update"): 3, (ENDPOINT_SLICE.table_name, "add"): 1}
    count_events(metrics, CATALOGUE, Commit([], [], 1, 0.0, 0.0, events, 0.0))
    lines = [line for line in metrics.exposition().decode().splitlines() if line.startswith("pilot_k8s")]
    assert lines == [
        'pilot_k8s_cfg_events{event="add",type="VirtualService"} 2',
        'pilot_k8s_cfg_events{event="delete",type="VirtualService"} 1',
        'pilot_k8s_reg_events{event="add",type="EndpointSlice"} 1',
        'pilot_k8s_reg_events{event="update",type="Services"} 3',
    ]


def test_deleted_services_are_counted_separately() -> None:
    metrics = Metrics(BuildInfo())
    edits = [
        (SERVICE.table_name, "a", object()),
        (SERVICE.table_name, "b", None),
        (SERVICE.table_name, "c", None),
        (VIRTUAL_SERVICE.table_name, "d", None),
    ]
    count_updates(metrics, CATALOGUE, Commit([], edits, 1, 0.0, 0.0, {}, 0.0))
    lines = {line for line in metrics.exposition().decode().splitlines() if line.startswith("pilot_inbound_updates")}
    assert lines == {
        f'pilot_inbound_updates{{type="{kind}"}} {count}'
        for kind, count in (("svc", 1), ("svcdelete", 2), ("config", 1))
    }
