"""Reconciliation of one IstioOperator in a fake cluster: actions, metrics and status."""

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


class RecordingCluster(FakeCluster):
    """A cluster that records the statuses of one IstioOperator."""

    def __init__(self, *objects: Plain, **more: Any) -> None:
        super().__init__(*objects, **more)
        self.statuses: list[Plain] = []

    async def patch(self, key: ResourceKey, patch: Plain, subresource: str = "") -> Plain:
        assert (str(key), subresource) == ("IstioOperator istio-system/mesh", "status")
        components = patch["status"]["componentStatus"]
        component_status = {
            name: {k: v for k, v in component.items() if v is not None}
            for name, component in components.items()
            if component is not None
        }
        status = {**patch["status"], "componentStatus": component_status}
        self.statuses.append(status)
        return {"status": status}


def istio_operator(generation: int = 1, **more: Any) -> IstioOperatorResource:
    metadata = {
        "name": "mesh",
        "namespace": "istio-system",
        "uid": "u",
        "generation": generation,
        "finalizers": [FINALIZER],
    }
    return istio_operator_of({"metadata": metadata, "spec": {}} | more)


class Setup:
    """A reconciler, its cluster and its metrics. `rendered` is its install plan, or a settings error."""

    def __init__(
        self,
        cluster: RecordingCluster,
        monkeypatch: pytest.MonkeyPatch,
        shared: frozenset[ResourceKey] = frozenset(),
        **more: Any,
    ) -> None:
        self.cluster, self.metrics = cluster, OperatorMetrics()
        self.rendered: InstallPlan | Exception = plan(step(CONFIG, WORKLOAD))
        backoff = Backoff(0.5, 0.5)
        objects: Any = cluster
        context = OperatorContext(
            objects,
            None,
            "",
            WaitOptions(-1.0, 0.0),
            backoff,
            random.Random(1),
            self.metrics,
            lambda key: shared,
            lambda keys, key: None,
        )
        self.reconciler = InstallationReconciler(context, istio_operator(**more))
        monkeypatch.setattr(module, "_render", self.render)
        self.delays: list[float] = []
        monkeypatch.setattr(self.reconciler._corrections, "next_delay", self.pause)

    def pause(self) -> float:
        self.delays.append(0.0)
        return 0.0

    def render(self, _: IstioOperatorResource) -> tuple[InstallPlan, list[str]]:
        if isinstance(self.rendered, Exception):
            raise self.rendered
        return self.rendered, ["w has no effect"]

    def count(self, reason: str, result: str) -> float:
        return (
            self.metrics.registry.get_sample_value(
                "istio_install_operator_reconcile_request_total", {"reason": reason, "result": result}
            )
            or 0.0
        )

    def take_statuses(self) -> list[tuple[str, str, Plain]]:
        """Return and clear the recorded statuses: overall status, message, and component statuses."""
        statuses = [
            (s["status"], s["message"], {name: component["status"] for name, component in s["componentStatus"].items()})
            for s in self.cluster.statuses
        ]
        self.cluster.statuses.clear()
        return statuses


async def test_installation_is_reported_counted_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    assert await setup.reconciler._reconcile() is None
    assert setup.take_statuses() == [
        ("RECONCILING", "", {"Pilot": "RECONCILING"}),
        ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"}),
    ]
    assert setup.reconciler.desired == {resource_key(CONFIG), resource_key(WORKLOAD)}
    assert setup.count("install", "done") == 1
    setup.cluster.applied.clear()
    assert await setup.reconciler._reconcile() is None
    assert (setup.take_statuses(), setup.cluster.applied, setup.count("correct", "done")) == ([], [], 1)


@pytest.mark.parametrize(("version", "status"), [(VERSION, "RECONCILING"), ("0.1", "UPDATING"), (None, "RECONCILING")])
async def test_version_change_is_an_update(version: str | None, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(), monkeypatch, status={"componentStatus": {"Pilot": {"version": version}}})
    await setup.reconciler._reconcile()
    assert setup.take_statuses()[0] == (status, "", {"Pilot": status})


async def test_failed_installation_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(errors={"config": KubeError("no answer")}), monkeypatch)
    wait = await setup.reconciler._reconcile()
    assert wait is not None
    assert 0.25 <= wait <= 0.5
    assert setup.take_statuses()[1] == ("ERROR", "w has no effect", {"Pilot": "ERROR"})
    assert (setup.count("install", "again"), setup.count("install", "done"), setup.reconciler._attempts.failures) == (
        1,
        0,
        1,
    )
    setup.cluster.errors.clear()
    assert await setup.reconciler._reconcile() is None
    assert setup.reconciler._attempts.failures == 0
    assert setup.take_statuses()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_drift_is_corrected_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    await setup.reconciler._reconcile()
    setup.take_statuses()
    setup.cluster.applied.clear()
    setup.reconciler.mark_drifted(resource_key(OTHER))
    assert (await setup.reconciler._reconcile(), setup.cluster.applied, setup.delays) == (None, [], [])
    setup.cluster.delays["istiod"] = 5
    setup.reconciler.mark_drifted(resource_key(WORKLOAD))
    assert await setup.reconciler._reconcile() is None
    assert setup.cluster.applied == ["Deployment istio-system/istiod"]
    assert setup.take_statuses() == [("RECONCILING", "w has no effect", {"Pilot": "RECONCILING"})]
    assert setup.reconciler._components()["Pilot"].error == "Deployment istio-system/istiod: 0 of 1 pods ready"
    setup.cluster.delays["istiod"] = 0
    setup.reconciler.mark_drifted(resource_key(WORKLOAD))
    assert await setup.reconciler._reconcile() is None
    assert setup.take_statuses() == [("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})]
    assert setup.metrics.registry.get_sample_value("istio_install_operator_corrected_resource_total") == 2
    assert setup.count("correct", "done") == 3


async def test_lost_readiness_is_reported_without_a_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    await setup.reconciler._reconcile()
    setup.take_statuses()
    setup.cluster.applied.clear()
    setup.reconciler._wakeup.clear()
    setup.reconciler.update_readiness(resource_key(WORKLOAD), "")
    assert not setup.reconciler._wakeup.is_set()
    for missing, status in (("0 of 1 pods ready", "RECONCILING"), ("", "HEALTHY")):
        setup.reconciler.update_readiness(resource_key(WORKLOAD), missing)
        assert setup.reconciler._wakeup.is_set()
        setup.reconciler._wakeup.clear()
        assert await setup.reconciler._reconcile() is None
        assert setup.take_statuses() == [(status, "w has no effect", {"Pilot": status})]
        assert await setup.reconciler._reconcile() is None
        assert setup.take_statuses() == []
    assert setup.cluster.applied == []
    assert setup.metrics.registry.get_sample_value("istio_install_operator_corrected_resource_total") == 0


async def test_late_readiness_wakes_the_reconciler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = Setup(RecordingCluster(delays={"istiod": 5}), monkeypatch)
    setup.reconciler.update_readiness(resource_key(WORKLOAD), "0 of 1 pods ready")
    assert await setup.reconciler._reconcile() is not None
    setup.reconciler._wakeup.clear()
    setup.reconciler.update_readiness(resource_key(WORKLOAD), "")
    assert setup.reconciler._wakeup.is_set()


async def test_failed_correction_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    await setup.reconciler._reconcile()
    setup.take_statuses()
    setup.cluster.errors["config"] = KubeError("no answer")
    setup.reconciler.mark_drifted(resource_key(CONFIG))
    assert await setup.reconciler._reconcile() is not None
    assert setup.take_statuses() == [("ERROR", "no answer", {"Pilot": "ERROR"})]
    setup.cluster.errors.clear()
    setup.cluster.applied.clear()
    assert await setup.reconciler._reconcile() is None
    assert setup.cluster.applied == ["ConfigMap istio-system/config"]


async def test_obsolete_objects_are_pruned_unless_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    third = make_object(CONFIG_MAP, "third", "istio-system")
    setup = Setup(RecordingCluster(), monkeypatch, frozenset({resource_key(third)}))
    setup.rendered = plan(step(CONFIG, OTHER, third))
    await setup.reconciler._reconcile()
    setup.rendered = plan(step(CONFIG))
    setup.reconciler.update(istio_operator(2))
    assert await setup.reconciler._reconcile() is None
    assert setup.cluster.deleted == ["ConfigMap istio-system/other"]
    assert setup.count("install", "done") == 2


async def test_settings_error_is_reported_and_the_installation_maintained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    await setup.reconciler._reconcile()
    setup.take_statuses()
    setup.rendered = SettingsError("spec.hub: no")
    setup.reconciler.update(istio_operator(2))
    assert await setup.reconciler._reconcile() is None
    assert setup.take_statuses() == [("ERROR", "spec.hub: no", {"Pilot": "HEALTHY"})]
    setup.cluster.applied.clear()
    setup.reconciler.mark_drifted(resource_key(CONFIG))
    assert await setup.reconciler._reconcile() is None
    assert setup.cluster.applied == ["ConfigMap istio-system/config"]
    setup.rendered = plan(step(CONFIG, WORKLOAD))
    setup.reconciler.update(istio_operator(3))
    await setup.reconciler._reconcile()
    assert setup.take_statuses()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_failed_pruning_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(RecordingCluster(errors={"list ConfigMap": KubeError("no answer")}), monkeypatch)
    assert await setup.reconciler._reconcile() is not None
    assert setup.take_statuses()[-1] == (
        "HEALTHY",
        "cannot prune obsolete objects: no answer; w has no effect",
        {"Pilot": "HEALTHY"},
    )
    setup.reconciler.mark_drifted(next(iter(setup.reconciler.desired)))
    assert await setup.reconciler._reconcile() is not None, "a correction does not end the wait"
    setup.cluster.errors.clear()
    assert await setup.reconciler._reconcile() is None
    assert setup.take_statuses()[-1] == ("HEALTHY", "w has no effect", {"Pilot": "HEALTHY"})


async def test_internal_error_is_reported_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    setup.rendered = ZeroDivisionError("bug")
    assert await setup.reconciler._reconcile() is not None
    assert setup.take_statuses() == [("ERROR", "internal error of the operator: ZeroDivisionError: bug", {})]
    assert [record.getMessage() for record in caplog.records] == [
        "IstioOperator istio-system/mesh: reconciliation failed"
    ]


@pytest.mark.parametrize(
    ("resource", "is_change"),
    [(istio_operator(), False), (istio_operator(2), True), (istio_operator(metadata_only=1), False)],
)
async def test_only_changed_settings_wake_the_reconciler(
    resource: IstioOperatorResource, is_change: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler = Setup(RecordingCluster(), monkeypatch).reconciler
    reconciler._wakeup.clear()
    reconciler._attempts.next_delay()
    task = reconciler._task = asyncio.create_task(asyncio.sleep(99, 0.0))
    reconciler.update(resource)
    await asyncio.sleep(0)
    assert (reconciler._wakeup.is_set(), task.cancelled(), reconciler._attempts.failures) == (
        is_change,
        is_change,
        0 if is_change else 1,
    )
    task.cancel()


async def test_unreachable_cluster_is_reported_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(RecordingCluster(errors={"list MutatingWebhookConfiguration": KubeError("no answer")}), monkeypatch)
    assert await setup.reconciler._reconcile() is not None
    assert setup.take_statuses()[-1] == ("ERROR", "no answer", {"Pilot": "ERROR"})
    assert [record.getMessage() for record in caplog.records] == ["IstioOperator istio-system/mesh: no answer"]


async def test_drift_wakes_the_reconciler_and_resets_an_old_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    assert setup.reconciler._wakeup.is_set()
    setup.reconciler._wakeup.clear()
    await setup.reconciler._reconcile()
    for failures in (0, 5):
        setup.reconciler._corrections.failures = 5
        setup.reconciler.mark_drifted(resource_key(CONFIG))
        assert setup.reconciler._wakeup.is_set()
        await setup.reconciler._reconcile()
        assert setup.reconciler._corrections.failures == failures


async def test_delay_after_a_reconciliation(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    reconciler = Setup(RecordingCluster(), monkeypatch).reconciler
    delayed, finished = asyncio.ensure_future(asyncio.sleep(0, 3.0)), asyncio.ensure_future(asyncio.sleep(0, None))
    await asyncio.wait((delayed, finished))
    assert (reconciler._delay_after(delayed), reconciler._delay_after(finished)) == (3.0, None)
    failing: Any = asyncio.get_running_loop().create_future()
    failing.set_exception(ZeroDivisionError("bug"))
    assert 0.25 <= (reconciler._delay_after(failing) or 0.0) <= 0.5
    assert [record.getMessage() for record in caplog.records] == [
        "IstioOperator istio-system/mesh: failed to report a reconciliation error"
    ]


@pytest.mark.parametrize(
    ("revision", "finalizers", "ignored", "blocker", "is_checked", "is_released"),
    [
        ("", [FINALIZER], False, "", True, True),
        ("", [FINALIZER], False, "proxies are attached", True, False),
        ("", [], False, "", False, False),
        ("other", [FINALIZER], False, "", False, False),
        ("", [FINALIZER], True, "proxies are attached", False, True),
    ],
)
async def test_deletion_waits_for_attached_proxies(
    revision: str,
    finalizers: list[str],
    ignored: bool,
    blocker: str,
    is_checked: bool,
    is_released: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = Setup(RecordingCluster(), monkeypatch)
    await setup.reconciler._reconcile()
    setup.take_statuses()
    setup.reconciler._context = setup.reconciler._context._replace(revision=revision)
    calls: list[Any] = []

    async def delete(context: OperatorContext, resource: IstioOperatorResource, drifted: set[ResourceKey]) -> str:
        calls.append(("leave", context is setup.reconciler._context, str(resource.key), drifted))
        return blocker

    async def remove(objects: Any, key: ResourceKey) -> None:
        calls.append(("release", objects is setup.cluster, str(key)))

    monkeypatch.setattr(module, "delete_installation", delete)
    monkeypatch.setattr(module, "remove_finalizer", remove)
    annotations = {"install.istio.io/ignoreReconcile": "true"} if ignored else {}
    metadata = {
        **istio_operator().plain["metadata"],
        "finalizers": finalizers,
        "deletionTimestamp": "now",
        "annotations": annotations,
    }
    setup.reconciler.update(istio_operator_of({"metadata": metadata, "spec": {}}))
    setup.reconciler.mark_drifted(resource_key(CONFIG))
    delay = await setup.reconciler._reconcile()
    name = "IstioOperator istio-system/mesh"
    assert (
        calls == [("leave", True, name, {resource_key(CONFIG)})] * is_checked + [("release", True, name)] * is_released
    )
    is_waiting = is_checked and not is_released
    assert (delay is not None, setup.reconciler.desired == frozenset()) == (is_waiting, is_released)
    assert setup.take_statuses() == (
        [("ACTION_REQUIRED", "proxies are attached; deletion continues once they are gone", {})] if is_waiting else []
    )


def test_spec_must_be_a_mapping() -> None:
    with pytest.raises(SettingsError, match=r"^spec: expected a mapping, got 5$"):
        _render(istio_operator(spec=5))
