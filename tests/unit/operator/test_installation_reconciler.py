"""What the operator does for one IstioOperator at a time, what it counts, and what the status says, at a cluster in memory."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from deploy.operator.errors import SettingsError
from pilot.install.install_plan import InstallPlan
from pilot.install.installer import WaitOptions
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey, resource_key
from pilot.lib.backoff import Backoff
from pilot.lib.build_info import build_info
from pilot.operator import installation_reconciler as module
from pilot.operator.installation_reconciler import InstallationReconciler, _render
from pilot.operator.istio_operator_resource import FINALIZER, IstioOperatorResource, istio_operator_of
from pilot.operator.operator_context import OperatorContext
from pilot.operator.operator_metrics import OperatorMetrics
from testing.kube.small_cluster import CONFIG, CONFIG_MAP, WORKLOAD, FakeCluster, make_object, plan, step

Plain = dict[str, Any]
VERSION = build_info().version
OTHER = make_object(CONFIG_MAP, "other", "istio-system")


class Objects(FakeCluster):
    """A cluster that keeps what the status of the one IstioOperator is told."""

    def __init__(self, *there: Plain, **more: Any) -> None:
        super().__init__(*there, **more)
        self.told: list[Plain] = []

    async def patch(self, key: ResourceKey, patch: Plain, subresource: str = "") -> Plain:
        assert (str(key), subresource) == ("IstioOperator istio-system/mesh", "status")
        components = patch["status"]["componentStatus"]
        there = {
            name: {k: v for k, v in one.items() if v is not None} for name, one in components.items() if one is not None
        }
        status = {**patch["status"], "componentStatus": there}
        self.told.append(status)
        return {"status": status}


def custom(generation: int = 1, **more: Any) -> IstioOperatorResource:
    metadata = {
        "name": "mesh",
        "namespace": "istio-system",
        "uid": "u",
        "generation": generation,
        "finalizers": [FINALIZER],
    }
    return istio_operator_of({"metadata": metadata, "spec": {}} | more)


class Life:
    """A worker, its cluster and its metrics; `says` is what its settings come to."""

    def __init__(
        self, cluster: Objects, monkeypatch: pytest.MonkeyPatch, kept: frozenset[ResourceKey] = frozenset(), **more: Any
    ) -> None:
        self.cluster, self.metrics = cluster, OperatorMetrics()
        self.says: InstallPlan | Exception = plan(step(CONFIG, WORKLOAD))
        backoff = Backoff(0.5, 0.5)
        objects: Any = cluster
        parts = OperatorContext(
            objects,
            None,
            "",
            WaitOptions(-1.0, 0.0),
            backoff,
            random.Random(1),
            self.metrics,
            lambda key: kept,
            lambda keys, key: None,
        )
        self.worker = InstallationReconciler(parts, custom(**more))
        monkeypatch.setattr(module, "_render", self.read)
        self.slept: list[float] = []
        monkeypatch.setattr(self.worker._corrections, "next_delay", self.pause)

    def pause(self) -> float:
        self.slept.append(0.0)
        return 0.0

    def read(self, _: IstioOperatorResource) -> tuple[InstallPlan, list[str]]:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says, ["w has no effect"]

    def counted(self, reason: str, result: str) -> float:
        return (
            self.metrics.registry.get_sample_value(
                "istio_install_operator_reconcile_request_total", {"reason": reason, "result": result}
            )
            or 0.0
        )

    def said(self) -> list[tuple[str, str, Plain]]:
        """The statuses that were told: of all, the message, and of the components."""
        found = [
            (s["status"], s["message"], {name: one["status"] for name, one in s["componentStatus"].items()})
            for s in self.cluster.told
        ]
        self.cluster.told.clear()
        return found


async def test_what_is_installed_is_told_and_counted_and_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    assert await life.worker._reconcile() is None
    assert life.said() == [
        ("RECONCILING", "", {"Pilot": "RECONCILING"}),
        ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"}),
    ]
    assert life.worker.desired == {resource_key(CONFIG), resource_key(WORKLOAD)}
    assert life.counted("install", "done") == 1
    life.cluster.applied.clear()
    assert await life.worker._reconcile() is None
    assert (life.said(), life.cluster.applied, life.counted("correct", "done")) == ([], [], 1)


@pytest.mark.parametrize(("version", "status"), [(VERSION, "RECONCILING"), ("0.1", "UPDATING"), (None, "RECONCILING")])
async def test_another_version_is_an_update(version: str | None, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch, status={"componentStatus": {"Pilot": {"version": version}}})
    await life.worker._reconcile()
    assert life.said()[0] == (status, "", {"Pilot": status})


async def test_what_cannot_be_installed_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(errors={"config": KubeError("no answer")}), monkeypatch)
    wait = await life.worker._reconcile()
    assert wait is not None
    assert 0.25 <= wait <= 0.5
    assert life.said()[1] == ("ERROR", "w has no effect", {"Pilot": "ERROR"})
    assert (life.counted("install", "again"), life.counted("install", "done"), life.worker._attempts.failures) == (
        1,
        0,
        1,
    )
    life.cluster.errors.clear()
    assert await life.worker._reconcile() is None
    assert life.worker._attempts.failures == 0
    assert life.said()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_what_others_change_is_put_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._reconcile()
    life.said()
    life.cluster.applied.clear()
    life.worker.mark_drifted(resource_key(OTHER))
    assert (await life.worker._reconcile(), life.cluster.applied, life.slept) == (None, [], [])
    life.cluster.delays["istiod"] = 5
    life.worker.mark_drifted(resource_key(WORKLOAD))
    assert await life.worker._reconcile() is None
    assert life.cluster.applied == ["Deployment istio-system/istiod"]
    assert life.said() == [("RECONCILING", "w has no effect", {"Pilot": "RECONCILING"})]
    assert life.worker._components()["Pilot"].error == "Deployment istio-system/istiod: 0 of 1 pods ready"
    life.cluster.delays["istiod"] = 0
    life.worker.mark_drifted(resource_key(WORKLOAD))
    assert await life.worker._reconcile() is None
    assert life.said() == [("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})]
    assert life.metrics.registry.get_sample_value("istio_install_operator_corrected_resource_total") == 2
    assert life.counted("correct", "done") == 3


async def test_what_workloads_lack_later_is_told_without_a_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._reconcile()
    life.said()
    life.cluster.applied.clear()
    life.worker._wakeup.clear()
    life.worker.update_readiness(resource_key(WORKLOAD), "")
    assert not life.worker._wakeup.is_set()
    for missing, status in (("0 of 1 pods ready", "RECONCILING"), ("", "HEALTHY")):
        life.worker.update_readiness(resource_key(WORKLOAD), missing)
        assert life.worker._wakeup.is_set()
        life.worker._wakeup.clear()
        assert await life.worker._reconcile() is None
        assert life.said() == [(status, "w has no effect", {"Pilot": status})]
        assert await life.worker._reconcile() is None
        assert life.said() == []
    assert life.cluster.applied == []
    assert life.metrics.registry.get_sample_value("istio_install_operator_corrected_resource_total") == 0


async def test_a_workload_that_comes_up_after_it_was_waited_for_is_noticed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life(Objects(delays={"istiod": 5}), monkeypatch)
    life.worker.update_readiness(resource_key(WORKLOAD), "0 of 1 pods ready")
    assert await life.worker._reconcile() is not None
    life.worker._wakeup.clear()
    life.worker.update_readiness(resource_key(WORKLOAD), "")
    assert life.worker._wakeup.is_set()


async def test_what_cannot_be_put_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._reconcile()
    life.said()
    life.cluster.errors["config"] = KubeError("no answer")
    life.worker.mark_drifted(resource_key(CONFIG))
    assert await life.worker._reconcile() is not None
    assert life.said() == [("ERROR", "no answer", {"Pilot": "ERROR"})]
    life.cluster.errors.clear()
    life.cluster.applied.clear()
    assert await life.worker._reconcile() is None
    assert life.cluster.applied == ["ConfigMap istio-system/config"]


async def test_what_is_not_wanted_any_more_goes_unless_others_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    third = make_object(CONFIG_MAP, "third", "istio-system")
    life = Life(Objects(), monkeypatch, frozenset({resource_key(third)}))
    life.says = plan(step(CONFIG, OTHER, third))
    await life.worker._reconcile()
    life.says = plan(step(CONFIG))
    life.worker.update(custom(2))
    assert await life.worker._reconcile() is None
    assert life.cluster.deleted == ["ConfigMap istio-system/other"]
    assert life.counted("install", "done") == 2


async def test_a_mistake_is_told_and_what_was_installed_before_is_looked_after_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._reconcile()
    life.said()
    life.says = SettingsError("spec.hub: no")
    life.worker.update(custom(2))
    assert await life.worker._reconcile() is None
    assert life.said() == [("ERROR", "spec.hub: no", {"Pilot": "HEALTHY"})]
    life.cluster.applied.clear()
    life.worker.mark_drifted(resource_key(CONFIG))
    assert await life.worker._reconcile() is None
    assert life.cluster.applied == ["ConfigMap istio-system/config"]
    life.says = plan(step(CONFIG, WORKLOAD))
    life.worker.update(custom(3))
    await life.worker._reconcile()
    assert life.said()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_what_is_left_unfinished_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(Objects(errors={"list ConfigMap": KubeError("no answer")}), monkeypatch)
    assert await life.worker._reconcile() is not None
    assert life.said()[-1] == (
        "HEALTHY",
        "cannot prune obsolete objects: no answer; w has no effect",
        {"Pilot": "HEALTHY"},
    )
    life.worker.mark_drifted(next(iter(life.worker.desired)))
    assert await life.worker._reconcile() is not None, "a correction meanwhile does not end the waiting"
    life.cluster.errors.clear()
    assert await life.worker._reconcile() is None
    assert life.said()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_a_bug_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(Objects(), monkeypatch)
    life.says = ZeroDivisionError("bug")
    assert await life.worker._reconcile() is not None
    assert life.said() == [("ERROR", "internal error of the operator: ZeroDivisionError: bug", {})]
    assert [record.getMessage() for record in caplog.records] == [
        "IstioOperator istio-system/mesh: reconciliation failed"
    ]


@pytest.mark.parametrize(("seen", "news"), [(custom(), False), (custom(2), True), (custom(metadata_only=1), False)])
async def test_only_other_settings_are_news(
    seen: IstioOperatorResource, news: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Life(Objects(), monkeypatch).worker
    worker._wakeup.clear()
    worker._attempts.next_delay()
    turn = worker._task = asyncio.create_task(asyncio.sleep(99, 0.0))
    worker.update(seen)
    await asyncio.sleep(0)
    assert (worker._wakeup.is_set(), turn.cancelled(), worker._attempts.failures) == (news, news, 0 if news else 1)
    turn.cancel()


async def test_a_cluster_that_does_not_answer_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(Objects(errors={"list MutatingWebhookConfiguration": KubeError("no answer")}), monkeypatch)
    assert await life.worker._reconcile() is not None
    assert life.said()[-1] == ("ERROR", "no answer", {"Pilot": "ERROR"})
    assert [record.getMessage() for record in caplog.records] == ["IstioOperator istio-system/mesh: no answer"]


async def test_a_change_is_news_and_longer_pauses_end_when_nothing_was_changed_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life(Objects(), monkeypatch)
    assert life.worker._wakeup.is_set()
    life.worker._wakeup.clear()
    await life.worker._reconcile()
    for failed in (0, 5):
        life.worker._corrections.failures = 5
        life.worker.mark_drifted(resource_key(CONFIG))
        assert life.worker._wakeup.is_set()
        await life.worker._reconcile()
        assert life.worker._corrections.failures == failed


async def test_after_a_turn_it_is_looked_again_when_that_said_so_or_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Life(Objects(), monkeypatch).worker
    good, bad = asyncio.ensure_future(asyncio.sleep(0, 3.0)), asyncio.ensure_future(asyncio.sleep(0, None))
    await asyncio.wait((good, bad))
    assert (worker._delay_after(good), worker._delay_after(bad)) == (3.0, None)
    broken: Any = asyncio.get_running_loop().create_future()
    broken.set_exception(ZeroDivisionError("bug"))
    assert 0.25 <= (worker._delay_after(broken) or 0.0) <= 0.5
    assert [record.getMessage() for record in caplog.records] == [
        "IstioOperator istio-system/mesh: failed to report a reconciliation error"
    ]


@pytest.mark.parametrize(
    ("revision", "finalizers", "ignored", "attached", "asked", "released"),
    [
        ("", [FINALIZER], False, "", True, True),
        ("", [FINALIZER], False, "proxies are attached", True, False),
        ("", [], False, "", False, False),
        ("other", [FINALIZER], False, "", False, False),
        ("", [FINALIZER], True, "proxies are attached", False, True),
    ],
)
async def test_one_that_leaves_goes_when_nothing_is_attached_any_more(
    revision: str,
    finalizers: list[str],
    ignored: bool,
    attached: str,
    asked: bool,
    released: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life(Objects(), monkeypatch)
    await life.worker._reconcile()
    life.said()
    life.worker._context = life.worker._context._replace(revision=revision)
    done: list[Any] = []

    async def leave(parts: OperatorContext, one: IstioOperatorResource, drifted: set[ResourceKey]) -> str:
        done.append(("leave", parts is life.worker._context, str(one.key), drifted))
        return attached

    async def release(objects: Any, key: ResourceKey) -> None:
        done.append(("release", objects is life.cluster, str(key)))

    monkeypatch.setattr(module, "delete_installation", leave)
    monkeypatch.setattr(module, "remove_finalizer", release)
    annotations = {"install.istio.io/ignoreReconcile": "true"} if ignored else {}
    metadata = {
        **custom().plain["metadata"],
        "finalizers": finalizers,
        "deletionTimestamp": "now",
        "annotations": annotations,
    }
    life.worker.update(istio_operator_of({"metadata": metadata, "spec": {}}))
    life.worker.mark_drifted(resource_key(CONFIG))
    wait = await life.worker._reconcile()
    name = "IstioOperator istio-system/mesh"
    assert done == [("leave", True, name, {resource_key(CONFIG)})] * asked + [("release", True, name)] * released
    waits = asked and not released
    assert (wait is not None, life.worker.desired == frozenset()) == (waits, released)
    assert life.said() == (
        [("ACTION_REQUIRED", "proxies are attached; deletion continues once they are gone", {})] if waits else []
    )


def test_a_specification_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^spec: expected a mapping, got 5$"):
        _render(custom(spec=5))
