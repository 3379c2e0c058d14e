"""What is written for Gateways and Ingresses by the settings: which parts there are, what each is given and told, and when it begins."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from pilot.bootstrap.clusters import gateway_controllers as gateway_writers
from pilot.bootstrap.clusters.gateway_controllers import GatewayControllers
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import GATEWAY_CLASS
from pilot.config.kinds.istio import PROXY_CONFIG
from pilot.config.kinds.kubernetes import INGRESS, NAMESPACE
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.ingest.batch import Commit
from pilot.ingest.decode import DocumentOrigin
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import Backoff
from pilot.mesh.status.object_status import AMBIENT_KINDS, KINDS
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from testing.mesh.part_recorder import Journal, StandIn
from testing.mesh.world import rows_of
from webhook.inject.proxy_config import ProxyConfigObject

PARTS = (
    "RevisionTags",
    "StatusController",
    "GatewayClassController",
    "GatewayDeploymentController",
    "ShadowServiceController",
)
EVERY = {"PILOT_ENABLE_AMBIENT": "true", "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"}
GATEWAY, POOL = (
    GroupKind("gateway.networking.k8s.io", "Gateway"),
    GroupKind("inference.networking.k8s.io", "InferencePool"),
)
OTHERS = tuple(kind for kind in KINDS if kind != INGRESS.id)


class Written:
    """The writers of Gateways of a control plane whose parts are stand-ins."""

    def __init__(self, journal: Journal, environ: dict[str, str], injects: bool = True) -> None:
        self.journal, self.client, self.pace, self.choose = (
            journal,
            object(),
            WatchOptions(Backoff(1.0, 2.0)),
            random.Random(1),
        )
        self.settings = load([], environ).settings
        self.db, self.mesh = Mesh(self.settings.mesh), MeshConfig()
        self.source = SimpleNamespace(path_of=lambda *ref: "/".join(map(str, ref)), on_follow=[])
        self.configs: list[ProxyConfigObject] = []
        around = SimpleNamespace(
            mesh=lambda: self.mesh,
            proxy_ids=lambda namespace: (7, 8),
            compliance_policy="fips",
            proxy_configs=lambda: self.configs,
        )
        self.injector = SimpleNamespace(config="the templates", on_take=[]) if injects else None
        kubernetes: Any = SimpleNamespace(client=self.client, source=self.source, watch_options=self.pace)
        webhooks: Any = SimpleNamespace(context=around, injector=self.injector)
        self.writers = GatewayControllers(kubernetes, self.settings, self.db, webhooks, self.choose)

    def statuses(self) -> dict[str, StandIn]:
        """The writers of statuses by the kinds that they are for."""
        names = {OTHERS: "gateways", (INGRESS.id,): "ingresses", AMBIENT_KINDS: "ambient"}
        return {names[one.given[2]]: one for one in self.journal.made if one.name == "StatusController"}

    def elections(self) -> list[str]:
        return [name for name, _ in self.writers.elections()]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    made = Journal()
    made.take_over(monkeypatch, gateway_writers, *PARTS)
    return made


STATUS, CLASSES, DEPLOYMENTS = (
    "istio-gateway-status-leader-default",
    "GatewayClassController",
    "istio-gateway-deployment-default",
)


@pytest.mark.parametrize(
    ("environ", "injects", "matters", "makes_classes"),
    [
        ({}, True, ["istio-leader", STATUS, DEPLOYMENTS], True),
        ({}, False, ["istio-leader", STATUS], True),
        ({"PILOT_ENABLE_GATEWAY_API_STATUS": "false"}, True, ["istio-leader", DEPLOYMENTS], True),
        (
            {"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false"},
            True,
            ["istio-leader", STATUS, DEPLOYMENTS],
            False,
        ),
        ({"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false"}, True, ["istio-leader", STATUS], True),
        ({"PILOT_ENABLE_AMBIENT": "true"}, False, ["istio-leader", STATUS, "istio-status-leader"], True),
        ({"PILOT_ENABLE_AMBIENT": "true", "AMBIENT_ENABLE_STATUS": "false"}, False, ["istio-leader", STATUS], True),
        ({**EVERY, "PILOT_ENABLE_GATEWAY_API": "false"}, True, ["istio-leader", "istio-status-leader"], False),
        (
            {"ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"},
            False,
            ["istio-leader", STATUS, "istio-gateway-inferencepool-default"],
            True,
        ),
        (
            {**EVERY, "REVISION": "blue"},
            True,
            [
                "istio-leader",
                "istio-gateway-status-leader-blue",
                "istio-status-leader",
                "istio-gateway-deployment-blue",
                "istio-gateway-inferencepool-blue",
            ],
            True,
        ),
    ],
)
def test_settings_say_what_is_written(
    journal: Journal, environ: dict[str, str], injects: bool, matters: list[str], makes_classes: bool
) -> None:
    it = Written(journal, environ, injects)
    assert it.elections() == matters
    assert ("GatewayClassController" in journal.names) is makes_classes
    assert ("GatewayDeploymentController" in journal.names) is any("deployment" in name for name in matters)


def test_every_part_is_given_what_it_needs(journal: Journal) -> None:
    it = Written(journal, {**EVERY, "REVISION": "blue", "POD_NAMESPACE": "mesh", "CLUSTER_ID": "east"})
    client, db, backoff, choose = it.client, it.db, it.pace.backoff, it.choose
    assert journal.one("RevisionTags").given == (client, "blue", "mesh", it.pace, choose)
    found = it.statuses()
    assert list(found) == ["gateways", "ingresses", "ambient"]
    for name, one in found.items():
        path, is_ours = one.given[3:5]
        assert one.given == (
            client,
            db,
            one.given[2],
            path,
            is_ours,
            DocumentOrigin("east", True, "blue"),
            backoff,
            choose,
        )
        assert path(ObjectRef(GATEWAY, "shop", "edge")) == f"{GATEWAY}/shop/edge"
        assert (is_ours == it.writers.is_ours) is (name != "ingresses")
    assert found["ingresses"].given[4](object()) is True
    path = journal.one("GatewayClassController").given[2]
    assert journal.one("GatewayClassController").given == (client, db, path, backoff, choose)
    assert path("istio") == f"{GATEWAY_CLASS.id}//istio"
    path = journal.one("ShadowServiceController").given[2]
    assert journal.one("ShadowServiceController").given == (client, db, path, it.writers.is_ours, backoff, choose)
    assert path(ObjectKey("shop", "pool")) == f"{POOL}/shop/pool"


def test_gateways_are_deployed_with_what_the_injector_has(journal: Journal) -> None:
    it = Written(
        journal, {"REVISION": "blue", "CLUSTER_ID": "east", "PILOT_GATEWAY_API_CONTROLLER_NAME": "a/controller"}
    )
    given = journal.one("GatewayDeploymentController").given
    around = given[3]
    assert given == (it.client, it.db, given[2], around, "a/controller", it.pace, it.choose)
    assert given[2]() == f"{GATEWAY}/"
    assert (around.config(), around.mesh() is it.mesh, around.proxy_ids("shop")) == ("the templates", True, (7, 8))
    assert (around.cluster, around.revision, around.copies_metadata, around.compliance_policy) == (
        "east",
        "blue",
        True,
        "fips",
    )
    assert not Written(Journal(), {}).journal.made
    usual = around.proxy_config("shop", {"app": "edge"})
    assert usual == it.mesh.default_config
    it.configs = [ProxyConfigObject("shop", selector={"app": "edge"}, concurrency=3)]
    assert around.proxy_config("shop", {"app": "edge"}).concurrency == 3
    assert around.proxy_config("shop", {"app": "web"}) == around.proxy_config("bank", {"app": "edge"}) == usual


def test_labels_of_a_gateway_are_copied_where_the_settings_have_it_so(journal: Journal) -> None:
    Written(journal, {"PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": "false"})
    assert journal.one("GatewayDeploymentController").given[3].copies_metadata is False


def test_an_object_is_ours_by_its_labels_and_those_of_its_namespace(journal: Journal) -> None:
    it = Written(journal, {})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}
    it.db.commit([(NAMESPACE.table(it.db), key, row) for (_, key), row in rows_of([namespace]).items()])
    asked: list[tuple[Any, Any]] = []

    def is_ours(labels: Any, of_namespace: Any) -> bool:
        asked.append((dict(labels), None if of_namespace is None else dict(of_namespace)))
        return False

    tags: Any = it.writers.tags
    tags.is_ours = is_ours
    row: Any = SimpleNamespace(labels={"istio.io/rev": "x"}, namespace="shop")
    assert it.writers.is_ours(row) is False
    assert it.writers.is_ours(SimpleNamespace(labels={}, namespace="bank")) is False  # type: ignore[arg-type]
    assert it.writers.is_ours(SimpleNamespace(labels={}, namespace="")) is True, (
        "what the whole cluster has is everybody's"
    )
    assert asked == [({"istio.io/rev": "x"}, {"a": "b"}), ({}, None)]
    ours = journal.one("GatewayDeploymentController").given[3].is_ours
    assert ours({}, "") is False, "of a Gateway it is asked whatever its namespace"


# -- while it runs -----------------------------------------------------------------------------------------------------


async def test_parts_look_again_when_tags_change(journal: Journal) -> None:
    it = Written(journal, EVERY)
    await it.writers.start()
    await asyncio.sleep(0)
    assert journal.lines == ["RevisionTags.start", "GatewayClassController.run"]
    assert it.injector is not None
    for changed in it.writers.tags.on_change:
        changed()
    assert journal.take_calls() == [
        ("StatusController.resync",),
        ("StatusController.resync",),
        ("GatewayDeploymentController.resync",),
        ("ShadowServiceController.resync",),
    ]
    for taken in it.injector.on_take:
        taken()
    assert journal.take_calls() == [("GatewayDeploymentController.resync",)], "the templates are others"
    for followed in it.source.on_follow:
        followed(GATEWAY)
        assert journal.take_calls() == []
        followed(GATEWAY_CLASS.id)
    assert journal.take_calls() == [("GatewayClassController.resync",)]
    await it.writers.stop()
    assert journal.lines[2:] == ["RevisionTags.stop"]
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_without_any_part_only_tags_are_followed(journal: Journal) -> None:
    it = Written(journal, {"PILOT_ENABLE_GATEWAY_API": "false"})
    await it.writers.start()
    assert (it.writers.tags.on_change, it.source.on_follow, journal.lines) == ([], [], ["RevisionTags.start"])
    it.writers.on_stream_commit([])
    assert journal.take_calls() == []
    await it.writers.stop()


async def test_whoever_leads_waits_for_the_tags_but_for_ingresses(journal: Journal) -> None:
    it = Written(journal, EVERY)
    for (name, lead), part in zip(
        it.writers.elections(),
        (
            "StatusController",
            "StatusController",
            "StatusController",
            "GatewayDeploymentController",
            "ShadowServiceController",
        ),
        strict=True,
    ):
        journal.lines.clear()
        task = asyncio.ensure_future(lead())
        await asyncio.sleep(0)
        assert journal.lines == [*(() if name == "istio-leader" else ("RevisionTags.synced",)), f"{part}.run"]
        task.cancel()


def committed(it: Written, *tables: str) -> list[tuple[Any, ...]]:
    it.journal.take_calls()
    hit: Any = ["some nodes"]
    it.writers.on_commit(Commit(hit, [(table, "key", None) for table in tables], 1, 0.0, 0.0, Counter(), 0.0))
    return it.journal.take_calls()


def test_parts_are_told_of_what_is_committed(journal: Journal) -> None:
    it = Written(journal, EVERY)
    hit = ["some nodes"]
    status, deployed, shadowed = (
        ("StatusController.on_commit", hit),
        ("GatewayDeploymentController.on_commit", hit),
        ("ShadowServiceController.on_commit", hit),
    )
    edits = [("services", "key", None)]
    assert committed(it, "services") == [(*status, edits), (*status, edits), (*status, edits), deployed, shadowed]
    edits = [(GATEWAY_CLASS.table_name, "key", None)]
    assert committed(it, GATEWAY_CLASS.table_name) == [
        ("GatewayClassController.resync",),
        (*status, edits),
        (*status, edits),
        (*status, edits),
        deployed,
        shadowed,
    ]
    for table in ("MeshConfig", PROXY_CONFIG.table_name):
        assert [call[0] for call in committed(it, table)][-3:] == [
            "GatewayDeploymentController.on_commit",
            "GatewayDeploymentController.resync",
            "ShadowServiceController.on_commit",
        ]
    told = [call[0] for call in committed(it, NAMESPACE.table_name)]
    assert told == [
        "StatusController.on_commit",
        "StatusController.resync",
        "StatusController.on_commit",
        "StatusController.on_commit",
        "StatusController.resync",
        "GatewayDeploymentController.on_commit",
        "GatewayDeploymentController.resync",
        "ShadowServiceController.on_commit",
    ]
    nodes: Any = ["others"]
    it.writers.on_stream_commit(nodes)
    assert journal.take_calls() == [("StatusController.on_commit", nodes, ())]


def test_without_the_gateway_api_ingresses_have_their_status(journal: Journal) -> None:
    it = Written(journal, {"PILOT_ENABLE_GATEWAY_API": "false"})
    assert [call[0] for call in committed(it, NAMESPACE.table_name, GATEWAY_CLASS.table_name, "MeshConfig")] == [
        "StatusController.on_commit"
    ]
