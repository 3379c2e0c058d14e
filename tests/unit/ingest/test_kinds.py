"""The catalogue of kinds: a kind is one entry, and two kinds of one name are told apart everywhere."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

import pytest

from pilot.config.base import Lenient
from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import GATEWAY_API, NETWORKING, GroupKind, parse_kind
from pilot.config.kind import Kind
from pilot.config.kinds.istio import GATEWAY
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, error
from pilot.debug.configuration import problemz, resourcesz
from pilot.debug.explain import show
from pilot.derive import Table, derived
from pilot.derive.explanation import explain
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.events import count_events, count_updates, push_reasons
from pilot.ingest.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.build_info import BuildInfo
from pilot.lib.duration import parse_duration
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock
from testing.mesh.debug_server import sources

PER_CLUSTER = "ConfigMap EndpointSlice Namespace Node Pod Secret Service ServiceExport ServiceImport WorkloadEntry"
WITHOUT_NAMESPACE = "GatewayClass IngressClass Namespace Node"
GROUP = "gateways.example.com"
OTHER_GATEWAY = GroupKind(GROUP, "Gateway")
OBJECTS = f"""
apiVersion: {GROUP}/v1
kind: Gateway
metadata: {{name: front, namespace: shop}}
spec: {{gatewayClassName: istio}}
---
apiVersion: {NETWORKING}/v1
kind: Gateway
metadata: {{name: front, namespace: shop}}
spec: {{servers: [{{hosts: ['*'], port: {{number: 80, name: http, protocol: HTTP}}}}]}}
---
apiVersion: {GROUP}/v1
kind: Gateway
metadata: {{name: bare, namespace: shop}}
spec: {{}}
"""


class OtherGateway(Lenient, frozen=True):
    gateway_class_name: str = ""


def validate_other_gateway(o: Object[OtherGateway]) -> Iterable[Problem]:
    if not o.spec.gateway_class_name:
        yield error("missing-class", "spec.gatewayClassName", "a gateway needs a class")


def by_class(_: ObjectKey, o: Object[OtherGateway]) -> Iterable[str]:
    return (o.spec.gateway_class_name,)


ENTRY = Kind(
    OTHER_GATEWAY,
    ("v1",),
    OtherGateway,
    validate_other_gateway,
    indexes={"class": by_class},
    push_reason="global",
    update="svc",
)


class Loaded:
    """The objects above, read from a file by a catalogue with the new entry."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.mesh, self.problems = Mesh(catalogue=Catalogue((*CATALOGUE, ENTRY))), ProblemStore(lambda _: None)
        self.commits: list[Commit] = []
        batch = Batch(self.mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        (folder / "a.yaml").write_text(OBJECTS)
        FileSource(
            str(folder), batch, Ledger(self.problems).source(0, "files"), catalogue=self.mesh.catalogue
        ).load_initial()
        batch.flush()

    @property
    def table(self) -> Table[ObjectKey, Object[Any]]:
        return ENTRY.table(self.mesh)


@pytest.fixture
def loaded(tmp_path: pathlib.Path) -> Loaded:
    return Loaded(tmp_path)


@derived
def both_gateways(db: Mesh) -> tuple[object, ...]:
    key = ObjectKey("shop", "front")
    return GATEWAY.table(db).get(key), ENTRY.get(db, key)


def test_a_kind_of_one_entry_has_a_table_with_its_indexes(loaded: Loaded) -> None:
    key = ObjectKey("shop", "front")
    row = loaded.table.peek(key)
    assert row is not None
    assert (row.kind, row.spec) == (OTHER_GATEWAY, OtherGateway("istio"))
    assert loaded.table.keys("class", "istio") == loaded.table.keys("namespace", "shop") == (key,)
    other = GATEWAY.table(loaded.mesh).peek(key)
    assert other is not None
    assert other.kind == GroupKind(NETWORKING, "Gateway")


def test_its_problems_name_its_group(loaded: Loaded) -> None:
    (problem,) = loaded.problems
    assert str(problem.object) == f"{GROUP}/Gateway shop/bare"
    assert problem.code == "missing-class"
    (shown,) = problemz(sources(loaded.mesh, problems=list(loaded.problems)), {})
    assert (shown["group"], shown["kind"], shown["name"]) == (GROUP, "Gateway", "bare")


def test_it_is_counted_as_its_entry_says(loaded: Loaded) -> None:
    metrics, (commit,) = Metrics(BuildInfo()), loaded.commits
    count_events(metrics, loaded.mesh.catalogue, commit)
    count_updates(metrics, loaded.mesh.catalogue, commit)
    found = {
        line for line in metrics.exposition().decode().splitlines() if line.startswith(("pilot_k8s", "pilot_inbound"))
    }
    assert found == {
        'pilot_k8s_cfg_events{event="add",type="Gateway"} 1',
        f'pilot_k8s_cfg_events{{event="add",type="{GROUP}/Gateway"}} 1',
        'pilot_inbound_updates{type="config"} 1',
        'pilot_inbound_updates{type="svc"} 1',
    }
    assert push_reasons(loaded.mesh.catalogue, commit) == {"global": 1, "config": 1}


def test_it_is_shown_beside_the_kind_of_the_same_name(loaded: Loaded) -> None:
    listed = resourcesz(sources(loaded.mesh), {})
    assert [kind["group"] for kind in listed if kind["kind"] == "Gateway"] == [NETWORKING, GATEWAY_API, GROUP]
    node = loaded.mesh.watch(both_gateways)
    loaded.mesh.refresh(node)
    assert show(explain(loaded.mesh, node))["objects"] == [
        {"group": group, "kind": "Gateway", "namespace": "shop", "name": "front", "through": ["both_gateways"]}
        for group in (NETWORKING, GROUP)
    ]


def test_kinds_of_one_name_are_two() -> None:
    catalogue = Catalogue((*CATALOGUE, ENTRY))
    assert catalogue.find(OTHER_GATEWAY) is ENTRY
    assert CATALOGUE.find(OTHER_GATEWAY) is None
    assert catalogue.find_by_table(str(OTHER_GATEWAY)) is ENTRY
    assert catalogue.find_by_table("Proxy") is None
    assert catalogue.short_name(OTHER_GATEWAY) == f"{GROUP}/Gateway"
    assert catalogue.short_name(GroupKind(NETWORKING, "Gateway")) == "Gateway"
    assert catalogue.short_name(GroupKind("", "MeshConfig")) == "MeshConfig"


@pytest.mark.parametrize("kind", [GroupKind("", "Service"), OTHER_GATEWAY])
def test_the_text_of_a_kind_is_read_back(kind: GroupKind) -> None:
    assert parse_kind(str(kind)) == kind


def test_which_kinds_each_cluster_has_its_own_of_and_which_are_in_no_namespace() -> None:
    assert sorted(kind.id.name for kind in CATALOGUE if kind.per_cluster) == PER_CLUSTER.split()
    assert sorted(kind.id.name for kind in CATALOGUE if not kind.namespaced) == WITHOUT_NAMESPACE.split()
