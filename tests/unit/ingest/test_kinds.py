"""A kind added to the catalogue by one entry, with the same name as another kind."""

from __future__ import annotations

import asyncio
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
from pilot.debug.pages.configuration import problemz, resourcesz
from pilot.debug.pages.explain import show
from pilot.derive import Table, derived
from pilot.derive.explanation import explain
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.events import count_events, count_updates, push_reasons
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.build_info import BuildInfo
from pilot.lib.duration import parse_duration
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock
from testing.mesh.debug_server import sources

PER_CLUSTER_KINDS = (
    "ConfigMap EndpointSlice Namespace Node Pod Secret Service ServiceExport ServiceImport WorkloadEntry"
)
CLUSTER_SCOPED_KINDS = "GatewayClass IngressClass Namespace Node"
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


def validate_other_gateway(row: Object[OtherGateway]) -> Iterable[Problem]:
    if not row.spec.gateway_class_name:
        yield error("missing-class", "spec.gatewayClassName", "a gateway needs a class")


def by_class(_: ObjectKey, row: Object[OtherGateway]) -> Iterable[str]:
    return (row.spec.gateway_class_name,)


CUSTOM_KIND = Kind(
    OTHER_GATEWAY,
    ("v1",),
    OtherGateway,
    validate_other_gateway,
    indexes={"class": by_class},
    push_reason="global",
    update="svc",
)


class LoadedMesh:
    """A mesh with the objects above, loaded from a file with the extended catalogue."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.mesh, self.problems = Mesh(catalogue=Catalogue((*CATALOGUE, CUSTOM_KIND))), ProblemStore(lambda _: None)
        self.commits: list[Commit] = []
        batch = Batch(self.mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        (folder / "a.yaml").write_text(OBJECTS)
        FileSource(
            str(folder), batch, Ledger(self.problems).source(0, "files"), catalogue=self.mesh.catalogue
        ).load_initial()
        batch.flush()

    @property
    def table(self) -> Table[ObjectKey, Object[Any]]:
        return CUSTOM_KIND.table(self.mesh)


@pytest.fixture
def loaded_mesh(tmp_path: pathlib.Path) -> LoadedMesh:
    return LoadedMesh(tmp_path)


@derived
def both_gateways(db: Mesh) -> tuple[object, ...]:
    key = ObjectKey("shop", "front")
    return GATEWAY.table(db).get(key), CUSTOM_KIND.get(db, key)


def test_custom_kind_has_a_table_with_indexes(loaded_mesh: LoadedMesh) -> None:
    key = ObjectKey("shop", "front")
    row = loaded_mesh.table.peek(key)
    assert row is not None
    assert (row.kind, row.spec) == (OTHER_GATEWAY, OtherGateway("istio"))
    assert loaded_mesh.table.keys("class", "istio") == loaded_mesh.table.keys("namespace", "shop") == (key,)
    istio_gateway = GATEWAY.table(loaded_mesh.mesh).peek(key)
    assert istio_gateway is not None
    assert istio_gateway.kind == GroupKind(NETWORKING, "Gateway")


def test_problems_of_a_custom_kind_have_its_group(loaded_mesh: LoadedMesh) -> None:
    (problem,) = loaded_mesh.problems
    assert str(problem.object) == f"{GROUP}/Gateway shop/bare"
    assert problem.code == "missing-class"
    (plain,) = asyncio.run(problemz(sources(loaded_mesh.mesh, problems=list(loaded_mesh.problems)), {}))
    assert (plain["group"], plain["kind"], plain["name"]) == (GROUP, "Gateway", "bare")


def test_custom_kind_metrics(loaded_mesh: LoadedMesh) -> None:
    metrics, (commit,) = Metrics(BuildInfo()), loaded_mesh.commits
    count_events(metrics, loaded_mesh.mesh.catalogue, commit)
    count_updates(metrics, loaded_mesh.mesh.catalogue, commit)
    lines = {
        line for line in metrics.exposition().decode().splitlines() if line.startswith(("pilot_k8s", "pilot_inbound"))
    }
    assert lines == {
        'pilot_k8s_cfg_events{event="add",type="Gateway"} 1',
        f'pilot_k8s_cfg_events{{event="add",type="{GROUP}/Gateway"}} 1',
        'pilot_inbound_updates{type="config"} 1',
        'pilot_inbound_updates{type="svc"} 1',
    }
    assert push_reasons(loaded_mesh.mesh.catalogue, commit) == {"global": 1, "config": 1}


def test_custom_kind_is_listed_beside_the_kind_with_the_same_name(loaded_mesh: LoadedMesh) -> None:
    kinds = resourcesz(sources(loaded_mesh.mesh), {})
    assert [kind["group"] for kind in kinds if kind["kind"] == "Gateway"] == [NETWORKING, GATEWAY_API, GROUP]
    node = loaded_mesh.mesh.watch(both_gateways)
    loaded_mesh.mesh.refresh(node)
    assert show(explain(loaded_mesh.mesh, node), lambda _: None)["objects"] == [
        {
            "group": group,
            "kind": "Gateway",
            "namespace": "shop",
            "name": "front",
            "through": ["both_gateways"],
            "via": [],
        }
        for group in (NETWORKING, GROUP)
    ]


def test_kinds_with_the_same_name_are_distinct() -> None:
    catalogue = Catalogue((*CATALOGUE, CUSTOM_KIND))
    assert catalogue.find(OTHER_GATEWAY) is CUSTOM_KIND
    assert CATALOGUE.find(OTHER_GATEWAY) is None
    assert catalogue.find_by_table(str(OTHER_GATEWAY)) is CUSTOM_KIND
    assert catalogue.find_by_table("Proxy") is None
    assert catalogue.short_name(OTHER_GATEWAY) == f"{GROUP}/Gateway"
    assert catalogue.short_name(GroupKind(NETWORKING, "Gateway")) == "Gateway"
    assert catalogue.short_name(GroupKind("", "MeshConfig")) == "MeshConfig"


@pytest.mark.parametrize("kind", [GroupKind("", "Service"), OTHER_GATEWAY])
def test_kind_text_round_trips(kind: GroupKind) -> None:
    assert parse_kind(str(kind)) == kind


def test_per_cluster_and_cluster_scoped_kinds() -> None:
    assert sorted(kind.id.name for kind in CATALOGUE if kind.per_cluster) == PER_CLUSTER_KINDS.split()
    assert sorted(kind.id.name for kind in CATALOGUE if not kind.namespaced) == CLUSTER_SCOPED_KINDS.split()
