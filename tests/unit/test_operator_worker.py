"""What the operator does for one IstioOperator at a time, what it counts, and what the status says, at a cluster in memory."""
from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from deploy.operator.errors import SettingsError
from pilot.install.installer import Waits
from pilot.install.plan import InstallPlan
from pilot.kube.backoff import Backoff
from pilot.kube.errors import KubeError
from pilot.kube.objects import Key, key_of
from pilot.lib.build_info import build_info
from pilot.operator import worker as module
from pilot.operator.custom import FINALIZER, Custom, custom_of
from pilot.operator.metrics import OperatorMetrics
from pilot.operator.parts import OperatorParts
from pilot.operator.worker import Worker
from tests.support.small_cluster import CONFIG, CONFIG_MAP, WORKLOAD, Cluster, made, plan, step

Plain = dict[str, Any]
VERSION = build_info().version
OTHER = made(CONFIG_MAP, "other", "istio-system")


class Objects(Cluster):
    """A cluster that keeps what the status of the one IstioOperator is told."""

    def __init__(self, *there: Plain, **more: Any) -> None:
        super().__init__(*there, **more)
        self.told: list[Plain] = []

    async def patch(self, key: Key, patch: Plain, subresource: str = "") -> Plain:
        assert (str(key), subresource) == ("IstioOperator istio-system/mesh", "status")
        components = patch["status"]["componentStatus"]
        there = {name: {k: v for k, v in one.items() if v is not None} for name, one in components.items() if one is not None}
        status = {**patch["status"], "componentStatus": there}
        self.told.append(status)
        return {"status": status}


def custom(generation: int = 1, **more: Any) -> Custom:
    metadata = {"name": "mesh", "namespace": "istio-system", "uid": "u", "generation": generation, "finalizers": [FINALIZER]}
    return custom_of({"metadata": metadata, "spec": {}, **more})


class Life:
    """A worker, its cluster and its metrics; `says` is what its settings come to."""

    def __init__(self, cluster: Objects, monkeypatch: pytest.MonkeyPatch, kept: frozenset[Key] = frozenset(), **more: Any) -> None:
        self.cluster, self.metrics = cluster, OperatorMetrics()
        self.says: InstallPlan | Exception = plan(step(CONFIG, WORKLOAD))
        backoff = Backoff(0.5, 0.5)
        objects: Any = cluster
        parts = OperatorParts(
            objects, None, "", Waits(-1.0, 0.0), backoff, random.Random(1), self.metrics, lambda key: kept, lambda keys, key: None
        )
        self.worker = Worker(parts, custom(**more))
        monkeypatch.setattr(module, "_read", self.read)
        self.slept: list[float] = []
        monkeypatch.setattr(self.worker._corrections, "wait", self.pause)

    def pause(self) -> float:
        self.slept.append(0.0)
        return 0.0

    def read(self, _: Custom) -> tuple[InstallPlan, list[str]]:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says, ["w has no effect"]

    def counted(self, reason: str, result: str) -> float:
        return self.metrics.registry.get_sample_value(
            "istio_install_operator_reconcile_request_total", {"reason": reason, "result": result}
        ) or 0.0  # fmt: skip

    def said(self) -> list[tuple[str, str, Plain]]:
        """The statuses that were told: of all, the message, and of the components."""
        found = [(s["status"], s["message"], {name: one["status"] for name, one in s["componentStatus"].items()}) for s in self.cluster.told]
        self.cluster.told.clear()
        return found


async def test_what_is_installed_is_told_and_counted_and_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    assert await life.worker._look() is None
    assert life.said() == [("RECONCILING", "", {"Pilot": "RECONCILING"}), ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})]
    assert life.worker.wanted == {key_of(CONFIG), key_of(WORKLOAD)}
    assert life.counted("install", "done") == 1
    life.cluster.applied.clear()
    assert await life.worker._look() is None
    assert (life.said(), life.cluster.applied, life.counted("correct", "done")) == ([], [], 1)


@pytest.mark.parametrize(("version", "status"), [(VERSION, "RECONCILING"), ("0.1", "UPDATING"), (None, "RECONCILING")])
async def test_another_version_is_an_update(version: str | None, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch, status={"componentStatus": {"Pilot": {"version": version}}})
    await life.worker._look()
    assert life.said()[0] == (status, "", {"Pilot": status})


async def test_what_cannot_be_installed_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(refused={"config": KubeError("no answer")}), monkeypatch)
    wait = await life.worker._look()
    assert wait is not None
    assert 0.25 <= wait <= 0.5
    assert life.said()[1] == ("ERROR", "w has no effect", {"Pilot": "ERROR"})
    assert (life.counted("install", "again"), life.counted("install", "done")) == (1, 0)
    life.cluster.refused.clear()
    assert await life.worker._look() is None
    assert life.said()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_what_others_change_is_put_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._look()
    life.said()
    life.cluster.applied.clear()
    life.worker.drifted(key_of(OTHER))
    assert (await life.worker._look(), life.cluster.applied, life.slept) == (None, [], [])
    life.cluster.late["istiod"] = 5
    life.worker.drifted(key_of(WORKLOAD))
    assert await life.worker._look() is None
    assert life.cluster.applied == ["Deployment istio-system/istiod"]
    assert life.said() == [("RECONCILING", "w has no effect", {"Pilot": "RECONCILING"})]
    assert life.worker._components()["Pilot"].error == "Deployment istio-system/istiod: 0 of 1 pods ready"
    life.cluster.late["istiod"] = 0
    life.worker.drifted(key_of(WORKLOAD))
    assert await life.worker._look() is None
    assert life.said() == [("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})]
    assert life.metrics.registry.get_sample_value("istio_install_operator_corrected_resource_total") == 2
    assert life.counted("correct", "done") == 3


async def test_what_cannot_be_put_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._look()
    life.said()
    life.cluster.refused["config"] = KubeError("no answer")
    life.worker.drifted(key_of(CONFIG))
    assert await life.worker._look() is not None
    assert life.said() == [("ERROR", "no answer", {"Pilot": "ERROR"})]
    life.cluster.refused.clear()
    life.cluster.applied.clear()
    assert await life.worker._look() is None
    assert life.cluster.applied == ["ConfigMap istio-system/config"]


async def test_what_is_not_wanted_any_more_goes_unless_others_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    third = made(CONFIG_MAP, "third", "istio-system")
    life = Life(Objects(), monkeypatch, frozenset({key_of(third)}))
    life.says = plan(step(CONFIG, OTHER, third))
    await life.worker._look()
    life.says = plan(step(CONFIG))
    life.worker.saw(custom(2))
    assert await life.worker._look() is None
    assert life.cluster.deleted == ["ConfigMap istio-system/other"]
    assert life.counted("install", "done") == 2


async def test_a_mistake_is_told_and_what_was_installed_before_is_looked_after_on(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._look()
    life.said()
    life.says = SettingsError("spec.hub: no")
    life.worker.saw(custom(2))
    assert await life.worker._look() is None
    assert life.said() == [("ERROR", "spec.hub: no", {"Pilot": "HEALTHY"})]
    life.cluster.applied.clear()
    life.worker.drifted(key_of(CONFIG))
    assert await life.worker._look() is None
    assert life.cluster.applied == ["ConfigMap istio-system/config"]
    life.says = plan(step(CONFIG, WORKLOAD))
    life.worker.saw(custom(3))
    await life.worker._look()
    assert life.said()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_what_is_left_unfinished_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(refused={"list ConfigMap": KubeError("no answer")}), monkeypatch)
    assert await life.worker._look() is not None
    assert life.said()[-1] == ("HEALTHY", "what is left over is not pruned: no answer; w has no effect", {"Pilot": "HEALTHY"})
    life.cluster.refused.clear()
    assert await life.worker._look() is None
    assert life.said() == [("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})]


async def test_a_bug_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(Objects(), monkeypatch)
    life.says = ZeroDivisionError("bug")
    assert await life.worker._look() is not None
    assert life.said() == [("ERROR", "the operator has failed: ZeroDivisionError: bug", {})]
    assert [record.getMessage() for record in caplog.records] == ["IstioOperator istio-system/mesh cannot be reconciled"]


@pytest.mark.parametrize(("seen", "news"), [(custom(), False), (custom(2), True), (custom(metadata_only=1), False)])
async def test_only_other_settings_are_news(seen: Custom, news: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Life(Objects(), monkeypatch).worker
    worker._news.clear()
    worker._attempts.wait()
    turn = worker._turn = asyncio.create_task(asyncio.sleep(99, 0.0))
    worker.saw(seen)
    await asyncio.sleep(0)
    assert (worker._news.is_set(), turn.cancelled(), worker._attempts.failed) == (news, news, 0 if news else 1)
    turn.cancel()
