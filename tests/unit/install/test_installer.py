"""What an installer does step by step, and what it says of each, at a cluster that fails where a test wants it to."""

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


def installer(cluster: FakeCluster, told: list[tuple[Any, ...]] | None = None, ready: float = 300.0) -> Installer:
    def tell(progress: StepProgress) -> None:
        if told is not None:
            assert progress.seconds >= 0
            told.append(progress._replace(seconds=0.0))

    return Installer(cluster, WaitOptions(ready, 0.0), tell)  # type: ignore[arg-type]


# -- one step ----------------------------------------------------------------------------------------------------------


async def test_a_step_tells_what_it_applies_and_what_it_waits_for() -> None:
    told: list[Any] = []
    assert await installer(FakeCluster(delays={"istiod": 2}), told).install_step(step(CONFIG, WORKLOAD)) is None
    assert told == [
        StepProgress("Pilot", 0, 2, "ConfigMap istio-system/config", 0.0),
        StepProgress("Pilot", 1, 2, "Deployment istio-system/istiod", 0.0),
        StepProgress("Pilot", 1, 2, "Deployment istio-system/istiod: 0 of 1 pods ready", 0.0),
        StepProgress("Pilot", 2, 2, "", 0.0, finished=True),
    ]


async def test_a_step_without_waiting_is_done_when_all_is_applied() -> None:
    told: list[Any] = []
    assert await installer(FakeCluster(), told).install_step(step(WORKLOAD, CONFIG)) is None
    assert [(p.done, p.finished) for p in told] == [(0, False), (1, False), (2, True)]


async def test_what_does_not_come_up_in_its_time_fails_the_step() -> None:
    told: list[Any] = []
    failure = await installer(FakeCluster(delays={"istiod": 99}), told, ready=-1.0).install_step(step(WORKLOAD))
    said = "Deployment istio-system/istiod: 0 of 1 pods ready"
    causes = ("no pods have been created; for details, run kubectl describe -n istio-system deployment istiod",)
    assert failure == StepFailure("Pilot", f"not ready after -1 s: {said}", causes)
    assert told[-1] == StepProgress("Pilot", 0, 1, said, 0.0, failed=True)


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
async def test_what_cannot_be_applied_fails_the_step_with_advice(
    plain: Plain, error: KubeError, failure: StepFailure
) -> None:
    told: list[Any] = []
    assert await installer(FakeCluster(errors={"config": error}), told).install_step(step(plain, WORKLOAD)) == failure
    assert told[-1] == StepProgress("Pilot", 0, 2, str(error), 0.0, failed=True)


@pytest.mark.parametrize(
    ("error", "passes"),
    [(NotFound(404, "NotFound", ""), True), (UnknownKind("no such kind"), True), (KubeError("no answer"), False)],
)
async def test_a_dry_run_passes_over_what_it_did_not_make_and_waits_for_nothing(error: KubeError, passes: bool) -> None:
    told: list[Any] = []
    cluster = FakeCluster(errors={"config": error}, delays={"istiod": 99}, dry_run=True)
    failure = await installer(cluster, told).install_step(step(CONFIG, WORKLOAD))
    assert (failure is None) is passes
    assert [p.done for p in told] == ([0, 1, 2] if passes else [0, 0])


async def test_a_step_waits_for_those_before_it_and_fails_with_them() -> None:
    cluster = FakeCluster(errors={"config": KubeError("no answer")})
    steps = (
        step(CONFIG, component="Base"),
        step(WORKLOAD),
        step(make_object(CONFIG_MAP, "other", "istio-system"), component="Cni"),
    )
    outcome = await installer(cluster).install(plan(*steps))
    assert outcome.failures == (
        StepFailure("Base", "ConfigMap istio-system/config: no answer"),
        StepFailure("Pilot", "not installed, because Base failed"),
        StepFailure("Cni", "not installed, because Base failed"),
    )
    assert (outcome.pruned, outcome.warnings, cluster.applied) == ((), (), ["Namespace istio-system"])


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "network", "applied"),
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
async def test_the_namespace_of_the_control_plane_is_made_and_labelled_where_it_is_not(
    there: list[Plain], network: str, applied: list[str]
) -> None:
    cluster = FakeCluster(*there)
    assert await installer(cluster).install(plan(network=network)) == InstallOutcome((), (), ())
    assert cluster.applied == applied
    if applied:
        labels = {"labels": {"topology.istio.io/network": "n1"}} if network else {}
        assert cluster.objects[ResourceKey(NAMESPACE, "", "istio-system")]["metadata"] == {
            "name": "istio-system",
            **labels,
        }


async def test_other_namespaces_are_made_without_the_label_and_one_that_goes_away_is_an_error() -> None:
    cluster = FakeCluster()
    await installer(cluster).install(plan(step(make_object(CONFIG_MAP, "c", "gateways")), network="n1"))
    assert cluster.objects[ResourceKey(NAMESPACE, "", "gateways")] == make_object(NAMESPACE, "gateways")
    with pytest.raises(KubeError, match=r"^the namespace istio-system is being deleted$"):
        await installer(FakeCluster(make_object(NAMESPACE, "istio-system", status={"phase": "Terminating"}))).install(
            plan()
        )


async def test_what_cannot_be_pruned_is_a_remark() -> None:
    outcome = await installer(FakeCluster(errors={"list ConfigMap": KubeError("no answer")})).install(plan())
    assert outcome == InstallOutcome((), (), ("cannot prune obsolete objects: no answer",))


OWN = injector("istio-sidecar-injector")
SECOND = OperatorOwner("unknown", "", "r2")


@pytest.mark.parametrize(
    ("there", "owner", "values", "remark"),
    [
        ([], NO_OWNER, {}, True),
        ([injector("other", "r2")], NO_OWNER, {}, True),
        ([injector("mine", "r2")], SECOND, {}, True),
        ([injector("other", "r3")], SECOND, {}, False),
        ([], NO_OWNER, {"global": {"operatorManageWebhooks": True}}, False),
    ],
)
async def test_the_tag_default_is_taken_by_who_has_no_revision_or_is_alone(
    there: list[Plain], owner: OperatorOwner, values: Plain, remark: bool
) -> None:
    cluster = FakeCluster(*there, errors={DEFAULT_TAG: KubeError("no answer")})
    own = injector("mine", owner.revision, clientConfig={})
    outcome = await installer(cluster).install(plan(step(own), owner=owner, **values))
    assert outcome == InstallOutcome((), (), ("cannot set the tag default: no answer",) if remark else ())


async def test_a_plan_without_webhooks_sets_no_tag() -> None:
    outcome = await installer(FakeCluster(OWN, errors={DEFAULT_TAG: KubeError("no answer")})).install(
        plan(step(CONFIG))
    )
    assert outcome == InstallOutcome((), (), ())


async def test_a_dry_run_sets_no_tag() -> None:
    outcome = await installer(FakeCluster(errors={DEFAULT_TAG: KubeError("no answer")}, dry_run=True)).install(
        plan(step(OWN))
    )
    assert outcome == InstallOutcome((), (), ())


VALIDATOR = make_object(VALIDATING, "istio-validator", webhooks=[{"name": "a", "failurePolicy": "Ignore"}])
STRICT = make_object(VALIDATING, "istio-validator", webhooks=[{"name": "a", "failurePolicy": "Fail"}])


@pytest.mark.parametrize(
    ("there", "planned", "with_webhook_state"),
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
async def test_a_plan_does_not_undo_what_has_become_of_webhooks(
    there: list[Plain], planned: Plain, with_webhook_state: Plain
) -> None:
    found = await installer(FakeCluster(*there)).with_webhook_state(plan(step(planned)))
    assert found == plan(step(with_webhook_state))


@pytest.mark.parametrize(
    ("there", "owner", "named"),
    [
        ([injector("other")], NO_OWNER, []),
        ([injector("other", tag="default")], SECOND, ["other"]),
        ([injector("mine", "r2")], SECOND, []),
        ([injector("other", "r2")], SECOND, ["other"]),
        ([injector("other", "r2", namespaceSelector={})], NO_OWNER, ["other"]),
        ([injector("other", "r2", tag="default", namespaceSelector={})], NO_OWNER, []),
    ],
)
async def test_webhooks_that_would_inject_the_same_are_those_that_stay(
    there: list[Plain], owner: OperatorOwner, named: list[str]
) -> None:
    own = injector(
        "mine", "default" if named == ["other"] and there[0]["metadata"]["labels"].get(TAG) else owner.revision
    )
    found = await installer(FakeCluster(*there, injector("third", "r3"))).find_conflicts(plan(step(own), owner=owner))
    assert [text.partition(" and ")[2].partition(" ")[0] for text in found] == named


# -- tags and what is verified -----------------------------------------------------------------------------------------


async def test_a_tag_that_is_there_is_moved_unless_that_is_not_wanted() -> None:
    cluster: Any = FakeCluster(
        injector("own", "r2", clientConfig={}), injector("old", "r1", "prod"), injector("first", "r1")
    )
    (moved,) = await build_tag_objects(cluster, RevisionTag("prod", "r2", "istio-system"))
    assert (moved["metadata"]["labels"][REVISION], moved["metadata"]["labels"][TAG]) == ("r2", "prod")
    for tag, revision, error in (
        ("prod", "r2", "tag prod already points to revision r1; use --overwrite to change it"),
        ("r1", "r2", "r1 is the name of a revision; choose another name for the tag"),
        ("prod", "r9", "revision r9 is not installed; installed revisions: r1, r2"),
    ):
        with pytest.raises(TagError) as found:
            await build_tag_objects(cluster, RevisionTag(tag, revision, "istio-system"), overwrite=False)
        assert str(found.value) == error
    with pytest.raises(TagError, match=r"^tag none does not exist$"):
        await remove_tag(cluster, "none")
    assert list(map(str, await remove_tag(cluster, "prod"))) == cluster.deleted == ["MutatingWebhookConfiguration old"]


async def test_what_is_verified_is_compared_with_what_it_has_become() -> None:
    deactivated = {**OWN, "webhooks": [{**OWN["webhooks"][0], "namespaceSelector": NEVER, "objectSelector": NEVER}]}
    cluster: Any = FakeCluster(
        deactivated,
        injector("tag", tag="default"),
        STRICT,
        make_object(CONFIG_MAP, "there", "a", data={"k": "1"}),
        WORKLOAD,
    )
    changed, absent = make_object(CONFIG_MAP, "there", "a", data={"k": "2"}), make_object(CONFIG_MAP, "absent", "a")
    found = await verify_plan(cluster, plan(step(OWN, VALIDATOR, changed, absent, WORKLOAD)))
    assert found == [
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
