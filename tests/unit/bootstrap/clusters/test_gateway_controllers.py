"""Controllers for Gateways and Ingresses: selection by the settings, arguments, notifications and start."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
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
from testing.mesh.part_recorder import FakePart, PartRecorder
from testing.mesh.world import rows_of
from webhook.inject.proxy_config import ProxyConfigObject

PARTS = (
    "RevisionTags",
    "StatusController",
    "GatewayClassController",
    "GatewayDeploymentController",
    "ShadowServiceController",
)
ALL = {"PILOT_ENABLE_AMBIENT": "true", "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"}
GATEWAY, POOL = (
    GroupKind("gateway.networking.k8s.io", "Gateway"),
    GroupKind("inference.networking.k8s.io", "InferencePool"),
)
OTHERS = tuple(kind for kind in KINDS if kind != INGRESS.id)


class Harness:
    """Gateway controllers of a control plane, with stand-ins for the parts."""

    def __init__(self, journal: PartRecorder, environ: dict[str, str], has_injector: bool = True) -> None:
        self.journal, self.client, self.watch_options, self.rng = (
            journal,
            object(),
            WatchOptions(Backoff(1.0, 2.0)),
            random.Random(1),
        )
        self.settings = load([], environ).settings
        self.db, self.mesh = Mesh(self.settings.mesh), MeshConfig()
        self.source = SimpleNamespace(path_of=lambda *ref: "/".join(map(str, ref)), on_watch=[])
        self.configs: list[ProxyConfigObject] = []

        async def proxy_configs(namespace: str, labels: Mapping[str, str]) -> tuple[ProxyConfigObject, ...]:
            return tuple(self.configs)

        context = SimpleNamespace(
            mesh=lambda: self.mesh,
            proxy_ids=lambda namespace: (7, 8),
            compliance_policy="fips",
            proxy_configs=proxy_configs,
        )
        self.reviewers = SimpleNamespace(render=object())
        self.injector = SimpleNamespace(config="the templates", on_load=[]) if has_injector else None
        self.problems = object()
        kubernetes: Any = SimpleNamespace(
            client=self.client, source=self.source, watch_options=self.watch_options, problems=self.problems
        )
        webhooks: Any = SimpleNamespace(context=context, injector=self.injector, reviewers=self.reviewers)
        self.controllers = GatewayControllers(kubernetes, self.settings, self.db, webhooks, self.rng)

    def statuses(self) -> dict[str, FakePart]:
        """Return the status controllers by kind group."""
        names = {OTHERS: "gateways", (INGRESS.id,): "ingresses", AMBIENT_KINDS: "ambient"}
        return {names[part.args[2]]: part for part in self.journal.parts if part.name == "StatusController"}

    def elections(self) -> list[str]:
        return [name for name, _ in self.controllers.elections()]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> PartRecorder:
    recorder = PartRecorder()
    recorder.replace_classes(monkeypatch, gateway_writers, *PARTS)
    return recorder


STATUS, CLASSES, DEPLOYMENTS = (
    "istio-gateway-status-leader-default",
    "GatewayClassController",
    "istio-gateway-deployment-default",
)


@pytest.mark.parametrize(
    ("environ", "has_injector", "locks", "has_class_controller"),
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
        ({**ALL, "PILOT_ENABLE_GATEWAY_API": "false"}, True, ["istio-leader", "istio-status-leader"], False),
        (
            {"ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"},
            False,
            ["istio-leader", STATUS, "istio-gateway-inferencepool-default"],
            True,
        ),
        (
            {**ALL, "REVISION": "blue"},
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
def test_settings_select_controllers(
    journal: PartRecorder, environ: dict[str, str], has_injector: bool, locks: list[str], has_class_controller: bool
) -> None:
    harness = Harness(journal, environ, has_injector)
    assert harness.elections() == locks
    assert ("GatewayClassController" in journal.names) is has_class_controller
    assert ("GatewayDeploymentController" in journal.names) is any("deployment" in name for name in locks)


def test_parts_receive_their_arguments(journal: PartRecorder) -> None:
    harness = Harness(journal, {**ALL, "REVISION": "blue", "POD_NAMESPACE": "mesh", "CLUSTER_ID": "east"})
    client, db, backoff, rng = harness.client, harness.db, harness.watch_options.backoff, harness.rng
    assert journal.part("RevisionTags").args == (client, "blue", "mesh", harness.watch_options, rng)
    statuses = harness.statuses()
    assert list(statuses) == ["gateways", "ingresses", "ambient"]
    for name, controller in statuses.items():
        path, is_ours = controller.args[3:5]
        assert controller.args == (
            client,
            db,
            controller.args[2],
            path,
            is_ours,
            DocumentOrigin("east", True, "blue"),
            backoff,
            rng,
        )
        assert path(ObjectRef(GATEWAY, "shop", "edge")) == f"{GATEWAY}/shop/edge"
        assert (is_ours == harness.controllers.is_ours) is (name != "ingresses")
    assert statuses["ingresses"].args[4](object()) is True
    path = journal.part("GatewayClassController").args[2]
    assert journal.part("GatewayClassController").args == (client, db, path, backoff, rng)
    assert path("istio") == f"{GATEWAY_CLASS.id}//istio"
    path = journal.part("ShadowServiceController").args[2]
    assert journal.part("ShadowServiceController").args == (client, db, path, harness.controllers.is_ours, backoff, rng)
    assert path(ObjectKey("shop", "pool")) == f"{POOL}/shop/pool"


async def test_deployments_use_the_injector_configuration(journal: PartRecorder) -> None:
    harness = Harness(
        journal, {"REVISION": "blue", "CLUSTER_ID": "east", "PILOT_GATEWAY_API_CONTROLLER_NAME": "a/controller"}
    )
    args = journal.part("GatewayDeploymentController").args
    context = args[3]
    assert args == (
        harness.client,
        harness.db,
        args[2],
        context,
        "a/controller",
        harness.problems,
        harness.watch_options,
        harness.rng,
    )
    assert args[2]() == f"{GATEWAY}/"
    assert (context.config(), context.mesh() is harness.mesh, context.proxy_ids("shop")) == (
        "the templates",
        True,
        (7, 8),
    )
    assert (context.cluster, context.revision, context.copies_metadata, context.compliance_policy) == (
        "east",
        "blue",
        True,
        "fips",
    )
    assert not Harness(PartRecorder(), {}).journal.parts
    assert context.render is harness.reviewers.render
    default = await context.proxy_config("shop", {"app": "edge"})
    assert default == harness.mesh.default_config
    harness.configs = [ProxyConfigObject("shop", selector={"app": "edge"}, concurrency=3)]
    assert (await context.proxy_config("shop", {"app": "edge"})).concurrency == 3
    assert await context.proxy_config("shop", {"app": "web"}) == default
    assert await context.proxy_config("bank", {"app": "edge"}) == default


def test_copying_gateway_labels_is_configurable(journal: PartRecorder) -> None:
    Harness(journal, {"PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS": "false"})
    assert journal.part("GatewayDeploymentController").args[3].copies_metadata is False


def test_ownership_follows_object_and_namespace_labels(journal: PartRecorder) -> None:
    harness = Harness(journal, {})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}
    harness.db.commit([(NAMESPACE.table(harness.db), key, row) for (_, key), row in rows_of([namespace]).items()])
    calls: list[tuple[Any, Any]] = []

    def is_ours(labels: Any, namespace_labels: Any) -> bool:
        calls.append((dict(labels), None if namespace_labels is None else dict(namespace_labels)))
        return False

    tags: Any = harness.controllers.tags
    tags.is_ours = is_ours
    row: Any = SimpleNamespace(labels={"istio.io/rev": "x"}, namespace="shop")
    assert harness.controllers.is_ours(row) is False
    assert harness.controllers.is_ours(SimpleNamespace(labels={}, namespace="bank")) is False  # type: ignore[arg-type]
    assert harness.controllers.is_ours(SimpleNamespace(labels={}, namespace="")) is True, (
        "cluster-scoped objects belong to every revision"
    )
    assert calls == [({"istio.io/rev": "x"}, {"a": "b"}), ({}, None)]
    ours = journal.part("GatewayDeploymentController").args[3].is_ours
    assert ours({}, "") is False, "Gateway deployments always check the tags"


# -- a running process -------------------------------------------------------------------------------------------------


async def test_tag_changes_resync_the_controllers(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    await harness.controllers.start()
    await asyncio.sleep(0)
    assert journal.lines == ["RevisionTags.start", "GatewayClassController.run"]
    assert harness.injector is not None
    for on_change in harness.controllers.tags.on_change:
        on_change()
    assert journal.pop_calls() == [
        ("StatusController.resync",),
        ("StatusController.resync",),
        ("GatewayDeploymentController.resync",),
        ("ShadowServiceController.resync",),
    ]
    for on_take in harness.injector.on_load:
        on_take()
    assert journal.pop_calls() == [("GatewayDeploymentController.resync",)], "the templates changed"
    for on_watch in harness.source.on_watch:
        on_watch(GATEWAY)
        assert journal.pop_calls() == []
        on_watch(GATEWAY_CLASS.id)
    assert journal.pop_calls() == [("GatewayClassController.resync",)]
    await harness.controllers.stop()
    assert journal.lines[2:] == ["RevisionTags.stop"]
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_only_tags_are_watched_without_controllers(journal: PartRecorder) -> None:
    harness = Harness(journal, {"PILOT_ENABLE_GATEWAY_API": "false"})
    await harness.controllers.start()
    assert (harness.controllers.tags.on_change, harness.source.on_watch, journal.lines) == (
        [],
        [],
        ["RevisionTags.start"],
    )
    harness.controllers.on_stream_commit([])
    assert journal.pop_calls() == []
    await harness.controllers.stop()


async def test_leaders_wait_for_the_tags_except_for_ingresses(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    for (name, lead), part in zip(
        harness.controllers.elections(),
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


def calls_for(harness: Harness, *tables: str) -> list[tuple[Any, ...]]:
    harness.journal.pop_calls()
    nodes: Any = ["some nodes"]
    harness.controllers.on_commit(
        Commit(nodes, [(table, "key", None) for table in tables], 1, 0.0, 0.0, Counter(), 0.0)
    )
    return harness.journal.pop_calls()


def test_commits_notify_affected_parts(journal: PartRecorder) -> None:
    harness = Harness(journal, ALL)
    affected = ["some nodes"]
    status, deployment, shadow = (
        ("StatusController.on_commit", affected),
        ("GatewayDeploymentController.on_commit", affected),
        ("ShadowServiceController.on_commit", affected),
    )
    edits = [("services", "key", None)]
    assert calls_for(harness, "services") == [(*status, edits), (*status, edits), (*status, edits), deployment, shadow]
    edits = [(GATEWAY_CLASS.table_name, "key", None)]
    assert calls_for(harness, GATEWAY_CLASS.table_name) == [
        ("GatewayClassController.resync",),
        (*status, edits),
        (*status, edits),
        (*status, edits),
        deployment,
        shadow,
    ]
    for table in ("MeshConfig", PROXY_CONFIG.table_name):
        assert [call[0] for call in calls_for(harness, table)][-3:] == [
            "GatewayDeploymentController.on_commit",
            "GatewayDeploymentController.resync",
            "ShadowServiceController.on_commit",
        ]
    names = [call[0] for call in calls_for(harness, NAMESPACE.table_name)]
    assert names == [
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
    harness.controllers.on_stream_commit(nodes)
    assert journal.pop_calls() == [("StatusController.on_commit", nodes, ())]


def test_ingresses_have_status_without_the_gateway_api(journal: PartRecorder) -> None:
    harness = Harness(journal, {"PILOT_ENABLE_GATEWAY_API": "false"})
    assert [call[0] for call in calls_for(harness, NAMESPACE.table_name, GATEWAY_CLASS.table_name, "MeshConfig")] == [
        "StatusController.on_commit"
    ]
