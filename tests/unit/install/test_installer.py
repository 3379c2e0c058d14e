"""Steps of an installer and their progress reports, in a fake cluster with errors."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.install.injectors import DEFAULT_TAG, MUTATING, NEVER, VALIDATING
from pilot.install.installation_labels import REVISION, TAG, OperatorOwner
from pilot.install.installer import Installer, InstallOutcome, StepFailure, StepProgress, WaitOptions
from pilot.install.tag_webhooks import RevisionTag, TagError, build_tag_objects, remove_tag
from pilot.install.verification import ObjectCheck, verify_plan
from pilot.kube.api_errors import ApiError, KubeError, NotFound
from pilot.kube.object_client import ResourceKey, UnknownKind, resource_key
from testing.kube.small_cluster import (
    CONFIG,
    CONFIG_MAP,
    NAMESPACE,
    NO_OWNER,
    WORKLOAD,
    FakeCluster,
    make_object,
    plan,
    step,
)

pytestmark = pytest.mark.slow

Plain = dict[str, Any]


def injector(name: str, revision: str = "default", tag: str = "", **more: Any) -> Plain:
    labels = {REVISION: revision, **({TAG: tag} if tag else {})}
    webhook = {
        "name": "rev.namespace.sidecar-injector.istio.io",
        "namespaceSelector": {"matchLabels": {REVISION: revision}},
        **more,
    }
    return make_object(MUTATING, name, metadata={"labels": labels}, webhooks=[webhook])


def make_installer(
    cluster: FakeCluster, reports: list[tuple[Any, ...]] | None = None, ready: float = 300.0
) -> Installer:
    def report(progress: StepProgress) -> None:
        if reports is not None:
            assert progress.seconds >= 0
            reports.append(progress._replace(seconds=0.0))

    return Installer(cluster, WaitOptions(ready, 0.0), report)  # type: ignore[arg-type]


# -- one step ----------------------------------------------------------------------------------------------------------


async def test_step_reports_applies_and_waits() -> None:
    reports: list[Any] = []
    assert await make_installer(FakeCluster(delays={"istiod": 2}), reports).install_step(step(CONFIG, WORKLOAD)) is None
    assert reports == [
        StepProgress("Pilot", 0, 2, "ConfigMap istio-system/config", 0.0),
        StepProgress("Pilot", 1, 2, "Deployment istio-system/istiod", 0.0),
        StepProgress("Pilot", 1, 2, "Deployment istio-system/istiod: 0 of 1 pods ready", 0.0),
        StepProgress("Pilot", 2, 2, "", 0.0, finished=True),
    ]


async def test_step_without_waiting() -> None:
    reports: list[Any] = []
    assert await make_installer(FakeCluster(), reports).install_step(step(WORKLOAD, CONFIG)) is None
    assert [(p.done, p.finished) for p in reports] == [(0, False), (1, False), (2, True)]


async def test_timeout_fails_the_step() -> None:
    reports: list[Any] = []
    failure = await make_installer(FakeCluster(delays={"istiod": 99}), reports, ready=-1.0).install_step(step(WORKLOAD))
    reason = "Deployment istio-system/istiod: 0 of 1 pods ready"
    causes = ("no pods have been created; for details, run kubectl describe -n istio-system deployment istiod",)
    assert failure == StepFailure("Pilot", f"not ready after -1 s: {reason}", causes)
    assert reports[-1] == StepProgress("Pilot", 0, 1, reason, 0.0, failed=True)


FORBIDDEN = ApiError(403, "Forbidden", "no")


@pytest.mark.parametrize(
    ("plain", "error", "failure"),
    [
        (
            CONFIG,
            FORBIDDEN,
            StepFailure(
                "Pilot",
                "ConfigMap istio-system/config: 403 Forbidden: no",
                ("the user needs permission to create and patch ConfigMap objects in the namespace istio-system",),
            ),
        ),
        (
            make_object(NAMESPACE, "config"),
            FORBIDDEN,
            StepFailure(
                "Pilot",
                "Namespace config: 403 Forbidden: no",
                ("the user needs permission to create and patch Namespace objects in the cluster",),
            ),
        ),
        (CONFIG, ApiError(404, "NotFound", ""), StepFailure("Pilot", "ConfigMap istio-system/config: 404 NotFound")),
        (CONFIG, KubeError("no answer"), StepFailure("Pilot", "ConfigMap istio-system/config: no answer")),
    ],
)
async def test_failed_apply_fails_the_step_with_advice(plain: Plain, error: KubeError, failure: StepFailure) -> None:
    reports: list[Any] = []
    assert (
        await make_installer(FakeCluster(errors={"config": error}), reports).install_step(step(plain, WORKLOAD))
        == failure
    )
    assert reports[-1] == StepProgress("Pilot", 0, 2, str(error), 0.0, failed=True)


@pytest.mark.parametrize(
    ("error", "is_ignored"),
    [(NotFound(404, "NotFound", ""), True), (UnknownKind("no such kind"), True), (KubeError("no answer"), False)],
)
async def test_dry_run_ignores_missing_objects_and_does_not_wait(error: KubeError, is_ignored: bool) -> None:
    reports: list[Any] = []
    cluster = FakeCluster(errors={"config": error}, delays={"istiod": 99}, dry_run=True)
    failure = await make_installer(cluster, reports).install_step(step(CONFIG, WORKLOAD))
    assert (failure is None) is is_ignored
    assert [p.done for p in reports] == ([0, 1, 2] if is_ignored else [0, 0])


async def test_step_fails_with_its_dependencies() -> None:
    cluster = FakeCluster(errors={"config": KubeError("no answer")})
    steps = (
        step(CONFIG, component="Base"),
        step(WORKLOAD),
        step(make_object(CONFIG_MAP, "other", "istio-system"), component="Cni"),
    )
    outcome = await make_installer(cluster).install(plan(*steps))
    assert outcome.failures == (
        StepFailure("Base", "ConfigMap istio-system/config: no answer"),
        StepFailure("Pilot", "not installed, because Base failed"),
        StepFailure("Cni", "not installed, because Base failed"),
    )
    assert (outcome.pruned, outcome.warnings, cluster.applied) == ((), (), ["Namespace istio-system"])


# -- installations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "network", "applied"),
    [
        ([], "", ["Namespace istio-system"]),
        ([make_object(NAMESPACE, "istio-system")], "", []),
        ([make_object(NAMESPACE, "istio-system")], "n1", ["Namespace istio-system"]),
        (
            [make_object(NAMESPACE, "istio-system", metadata={"labels": {"topology.istio.io/network": "n2"}})],
            "n1",
            ["Namespace istio-system"],
        ),
        ([make_object(NAMESPACE, "istio-system", metadata={"labels": {"topology.istio.io/network": "n1"}})], "n1", []),
    ],
)
async def test_system_namespace_is_created_and_labelled(objects: list[Plain], network: str, applied: list[str]) -> None:
    cluster = FakeCluster(*objects)
    assert await make_installer(cluster).install(plan(network=network)) == InstallOutcome((), (), ())
    assert cluster.applied == applied
    if applied:
        labels = {"labels": {"topology.istio.io/network": "n1"}} if network else {}
        assert cluster.objects[ResourceKey(NAMESPACE, "", "istio-system")]["metadata"] == {
            "name": "istio-system",
            **labels,
        }


async def test_other_namespaces_and_terminating_namespace() -> None:
    cluster = FakeCluster()
    await make_installer(cluster).install(plan(step(make_object(CONFIG_MAP, "c", "gateways")), network="n1"))
    assert cluster.objects[ResourceKey(NAMESPACE, "", "gateways")] == make_object(NAMESPACE, "gateways")
    with pytest.raises(KubeError, match=r"^the namespace istio-system is being deleted$"):
        await make_installer(
            FakeCluster(make_object(NAMESPACE, "istio-system", status={"phase": "Terminating"}))
        ).install(plan())


async def test_failed_pruning_is_a_warning() -> None:
    outcome = await make_installer(FakeCluster(errors={"list ConfigMap": KubeError("no answer")})).install(plan())
    assert outcome == InstallOutcome((), (), ("cannot prune obsolete objects: no answer",))


OWN = injector("istio-sidecar-injector")
SECOND = OperatorOwner("unknown", "", "r2")


@pytest.mark.parametrize(
    ("objects", "owner", "values", "is_set"),
    [
        ([], NO_OWNER, {}, True),
        ([injector("other", "r2")], NO_OWNER, {}, True),
        ([injector("mine", "r2")], SECOND, {}, True),
        ([injector("other", "r3")], SECOND, {}, False),
        ([], NO_OWNER, {"global": {"operatorManageWebhooks": True}}, False),
    ],
)
async def test_default_tag_is_set_for_the_default_or_only_revision(
    objects: list[Plain], owner: OperatorOwner, values: Plain, is_set: bool
) -> None:
    cluster = FakeCluster(*objects, errors={DEFAULT_TAG: KubeError("no answer")})
    own = injector("mine", owner.revision, clientConfig={})
    outcome = await make_installer(cluster).install(plan(step(own), owner=owner, **values))
    assert outcome == InstallOutcome((), (), ("cannot set the tag default: no answer",) if is_set else ())


async def test_plan_without_webhooks_sets_no_tag() -> None:
    outcome = await make_installer(FakeCluster(OWN, errors={DEFAULT_TAG: KubeError("no answer")})).install(
        plan(step(CONFIG))
    )
    assert outcome == InstallOutcome((), (), ())


async def test_dry_run_sets_no_tag() -> None:
    outcome = await make_installer(FakeCluster(errors={DEFAULT_TAG: KubeError("no answer")}, dry_run=True)).install(
        plan(step(OWN))
    )
    assert outcome == InstallOutcome((), (), ())


VALIDATOR = make_object(VALIDATING, "istio-validator", webhooks=[{"name": "a", "failurePolicy": "Ignore"}])
STRICT = make_object(VALIDATING, "istio-validator", webhooks=[{"name": "a", "failurePolicy": "Fail"}])


@pytest.mark.parametrize(
    ("objects", "planned", "with_webhook_state"),
    [
        ([STRICT], VALIDATOR, STRICT),
        ([], VALIDATOR, VALIDATOR),
        (
            [injector("tag", tag="default")],
            OWN,
            {**OWN, "webhooks": [{**OWN["webhooks"][0], "namespaceSelector": NEVER, "objectSelector": NEVER}]},
        ),
        ([injector("tag", tag="prod")], OWN, OWN),
        ([injector("tag", tag="default")], injector("two", "r2"), injector("two", "r2")),
        ([injector("tag", tag="default")], injector("own", tag="x"), injector("own", tag="x")),
        ([injector("tag", tag="default")], CONFIG, CONFIG),
    ],
)
async def test_plan_keeps_the_state_of_webhooks(
    objects: list[Plain], planned: Plain, with_webhook_state: Plain
) -> None:
    updated = await make_installer(FakeCluster(*objects)).with_webhook_state(plan(step(planned)))
    assert updated == plan(step(with_webhook_state))


@pytest.mark.parametrize(
    ("objects", "owner", "expected"),
    [
        ([injector("other")], NO_OWNER, []),
        ([injector("other", tag="default")], SECOND, ["other"]),
        ([injector("mine", "r2")], SECOND, []),
        ([injector("other", "r2")], SECOND, ["other"]),
        ([injector("other", "r2", namespaceSelector={})], NO_OWNER, ["other"]),
        ([injector("other", "r2", tag="default", namespaceSelector={})], NO_OWNER, []),
    ],
)
async def test_conflicting_webhooks(objects: list[Plain], owner: OperatorOwner, expected: list[str]) -> None:
    own = injector(
        "mine", "default" if expected == ["other"] and objects[0]["metadata"]["labels"].get(TAG) else owner.revision
    )
    conflicts = await make_installer(FakeCluster(*objects, injector("third", "r3"))).find_conflicts(
        plan(step(own), owner=owner)
    )
    assert [text.partition(" and ")[2].partition(" ")[0] for text in conflicts] == expected


# -- tags and verification ---------------------------------------------------------------------------------------------


async def test_existing_tag_is_moved_only_with_overwrite() -> None:
    cluster: Any = FakeCluster(
        injector("own", "r2", clientConfig={}), injector("old", "r1", "prod"), injector("first", "r1")
    )
    webhook, service = await build_tag_objects(cluster, RevisionTag("prod", "r2", "istio-system"))
    for plain in (webhook, service):
        assert (plain["metadata"]["labels"][REVISION], plain["metadata"]["labels"][TAG]) == ("r2", "prod")
    for tag, revision, error in (
        ("prod", "r2", "tag prod already points to revision r1; use --overwrite to change it"),
        ("r1", "r2", "r1 is the name of a revision; choose another name for the tag"),
        ("prod", "r9", "revision r9 is not installed; installed revisions: r1, r2"),
    ):
        with pytest.raises(TagError) as raised:
            await build_tag_objects(cluster, RevisionTag(tag, revision, "istio-system"), overwrite=False)
        assert str(raised.value) == error
    with pytest.raises(TagError, match=r"^tag none does not exist$"):
        await remove_tag(cluster, "none")
    assert list(map(str, await remove_tag(cluster, "prod"))) == cluster.deleted == ["MutatingWebhookConfiguration old"]


async def test_verification_considers_the_state_of_webhooks() -> None:
    deactivated = {**OWN, "webhooks": [{**OWN["webhooks"][0], "namespaceSelector": NEVER, "objectSelector": NEVER}]}
    cluster: Any = FakeCluster(
        deactivated,
        injector("tag", tag="default"),
        STRICT,
        make_object(CONFIG_MAP, "there", "a", data={"k": "1"}),
        WORKLOAD,
    )
    changed, absent = make_object(CONFIG_MAP, "there", "a", data={"k": "2"}), make_object(CONFIG_MAP, "absent", "a")
    checks = await verify_plan(cluster, plan(step(OWN, VALIDATOR, changed, absent, WORKLOAD)))
    assert checks == [
        ObjectCheck(resource_key(OWN), ""),
        ObjectCheck(resource_key(VALIDATOR), ""),
        ObjectCheck(resource_key(changed), "data.k differs from the installation"),
        ObjectCheck(resource_key(absent), "not found"),
        ObjectCheck(resource_key(WORKLOAD), ""),
    ]
    untagged: Any = FakeCluster(OWN, errors={"config": KubeError("no answer")})
    untagged.objects[resource_key(CONFIG)] = CONFIG
    assert await verify_plan(untagged, plan(step(OWN, CONFIG))) == [
        ObjectCheck(resource_key(OWN), ""),
        ObjectCheck(resource_key(CONFIG), "no answer"),
    ]
