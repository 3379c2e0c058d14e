"""An installation at an API server: install, change, upgrade by tag, uninstall, whatever ends in the middle."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pilot.install.injectors import deactivated
from pilot.install.installation_labels import NOT_PRUNED, TAG
from pilot.install.installer import Installer, StepProgress, WaitOptions
from pilot.install.tag_webhooks import RevisionTag, TagError, apply_tag, build_tag_objects
from pilot.install.uninstallation import delete_objects, uninstallation_of_everything, uninstallation_of_revision
from pilot.install.verification import verify_plan, verify_revision
from pilot.kube.object_client import ObjectClient
from testing.apiserver.server import ApiServer
from testing.kube.controllers import Controllers
from testing.kube.installations import (
    SYSTEM,
    WAITS,
    Crash,
    CrashingClient,
    Plain,
    State,
    expected_of,
    install,
    light_installation,
    objects_of,
    plan,
    snapshot,
    state_of,
)

Work = Callable[[ObjectClient], Awaitable[Any]]
FIRST = ("profile=demo",)
CHANGED = ("profile=default", "values.pilot.autoscaleEnabled=false", "components.pilot.k8s.replicaCount=2", "tag=1.2.3")
SECOND = ("profile=default", "revision=r2")
INJECTOR, TAG_WEBHOOK = (
    "MutatingWebhookConfiguration/istio-sidecar-injector",
    "MutatingWebhookConfiguration/istio-revision-tag-default",
)
VALIDATOR = "ValidatingWebhookConfiguration/istiod-default-validator"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = await started()
    yield made
    await made.stop()


async def started(objects: list[Plain] = []) -> ApiServer:  # noqa: B006
    made = ApiServer()
    for plain in objects:
        made.put(plain)
    Controllers(made)
    await made.start()
    return made


# -- the four stages of a control plane's life, each of which may be repeated ---------------------------------------------


async def installed(objects: ObjectClient) -> None:
    await install(objects, plan(*FIRST))


async def changed(objects: ObjectClient) -> None:
    await install(objects, plan(*CHANGED))


async def upgraded(objects: ObjectClient) -> None:
    await install(objects, plan(*SECOND))
    for name in ("prod", "default"):
        await apply_tag(objects, await build_tag_objects(objects, RevisionTag(name, "r2", SYSTEM)))


async def uninstalled(objects: ObjectClient) -> None:
    await delete_objects(objects, await uninstallation_of_revision(objects, "default"))


STAGES: tuple[Work, ...] = (installed, changed, upgraded, uninstalled)


def with_default_tag(found: State, state: State, revision: str) -> State:
    """What is expected where the default tag has taken the place of the webhooks of the revision `default`."""
    tag = state[TAG_WEBHOOK]
    assert (
        tag["metadata"]["labels"] | {TAG: "default", NOT_PRUNED: "true", "istio.io/rev": revision}
        == tag["metadata"]["labels"]
    )
    service = "istiod" if revision == "default" else f"istiod-{revision}"
    assert {w["clientConfig"]["service"]["name"] for w in tag["webhooks"]} == {service}
    prefixes = {w["name"].removesuffix("sidecar-injector.istio.io") for w in tag["webhooks"]}
    assert prefixes == {"rev.namespace.", "rev.object.", "namespace.", "object."}
    assert state[VALIDATOR]["webhooks"][0]["clientConfig"]["service"]["name"] == service
    own = {INJECTOR: deactivated(found[INJECTOR])} if INJECTOR in found else {}
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    return {**found, **own, TAG_WEBHOOK: tag, VALIDATOR: state[VALIDATOR], f"Namespace/{SYSTEM}": system}


async def test_each_stage_leaves_what_manifest_generate_says(server: ApiServer) -> None:
    objects = objects_of(server)
    await installed(objects)
    state = state_of(server)
    assert state == with_default_tag(expected_of(light_installation(*FIRST)), state, "default")

    await changed(objects)
    state = state_of(server)
    assert state == with_default_tag(expected_of(light_installation(*CHANGED)), state, "default")

    await upgraded(objects)
    state = state_of(server)
    second = expected_of(light_installation(*SECOND), revision="r2")
    both = {**expected_of(light_installation(*CHANGED)), **second}
    prod = state["MutatingWebhookConfiguration/istio-revision-tag-prod"]
    assert state == {
        **with_default_tag(both, state, "r2"),
        "MutatingWebhookConfiguration/istio-revision-tag-prod": prod,
    }

    await uninstalled(objects)
    state = state_of(server)
    assert state == {
        **with_default_tag(second, state, "r2"),
        "MutatingWebhookConfiguration/istio-revision-tag-prod": prod,
    }

    await delete_objects(objects, await uninstallation_of_everything(objects))
    assert set(state_of(server)) == {f"Namespace/{SYSTEM}"}


@pytest.mark.parametrize("stage", range(len(STAGES)), ids=[work.__name__ for work in STAGES])
async def test_what_was_ended_in_the_middle_is_completed_by_the_next_run(stage: int) -> None:
    """Thirteen random points of each of the four stages."""
    choose = random.Random(stage)
    server = await started()
    for work in STAGES[:stage]:
        await work(objects_of(server))
    before = snapshot(server)
    counting = CrashingClient(server, 10**9, False)
    await STAGES[stage](objects_of(server, counting))
    wanted = state_of(server)
    await server.stop()
    for _ in range(13):
        server = await started(before)
        mortal = CrashingClient(server, choose.randint(1, counting.requests), choose.random() < 0.5)
        with pytest.raises(Crash):
            await STAGES[stage](objects_of(server, mortal))
        await STAGES[stage](objects_of(server))
        assert state_of(server) == wanted
        await server.stop()


async def test_the_same_again_changes_nothing(server: ApiServer) -> None:
    await installed(objects_of(server))
    revision = server.store.revision
    await installed(objects_of(server))
    assert server.store.revision == revision


async def test_components_come_in_their_order_and_wait_for_each_other(server: ApiServer) -> None:
    await install(objects_of(server), plan("profile=ambient", "components.ingressGateways[0].name=edge"))
    applied = [
        asked.name
        for asked in server.requests
        if asked.verb == "patch" and asked.resource.plural in ("deployments", "daemonsets")
    ]
    assert applied.index("istiod") < applied.index("edge")
    assert applied.index("istio-cni-node") < applied.index("ztunnel")
    kinds = [asked.resource.plural for asked in server.requests if asked.verb == "patch"]
    assert kinds.index("customresourcedefinitions") < kinds.index("deployments")


async def test_the_namespace_of_the_control_plane_has_the_label_of_its_network(server: ApiServer) -> None:
    await install(objects_of(server), plan("profile=minimal", "values.global.network=east"))
    assert state_of(server)[f"Namespace/{SYSTEM}"]["metadata"]["labels"] == {"topology.istio.io/network": "east"}


async def test_only_what_is_of_the_own_revision_and_owner_is_pruned(server: ApiServer) -> None:
    objects = objects_of(server)
    await install(objects, plan("profile=default", "revision=r1"))
    foreign = copy.deepcopy(server.get("", "configmaps", SYSTEM, "istio-r1"))
    assert foreign is not None
    marked = {
        **foreign,
        "metadata": {
            **foreign["metadata"],
            "name": "kept",
            "labels": {**foreign["metadata"]["labels"], NOT_PRUNED: "true"},
        },
    }
    somebody = {"install.operator.istio.io/owning-resource": "somebody"}
    others = {
        **foreign,
        "metadata": {**foreign["metadata"], "name": "others", "labels": {**foreign["metadata"]["labels"], **somebody}},
    }
    left = {**foreign, "metadata": {**foreign["metadata"], "name": "left"}}
    made = {
        **left,
        "metadata": {**left["metadata"], "name": "made", "ownerReferences": [{"kind": "X", "name": "y", "uid": "1"}]},
    }
    for plain in (marked, others, left, made):
        server.put(plain)
    await install(objects, plan("profile=minimal", "revision=r2"))
    assert server.get("", "configmaps", SYSTEM, "left") is not None
    outcome = await install(objects, plan("profile=default", "revision=r1"))
    assert [str(key) for key in outcome.pruned] == [f"ConfigMap {SYSTEM}/left"]


async def test_what_does_not_come_up_is_told_with_its_pod_and_its_events(server: ApiServer) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "istiod-1", "namespace": SYSTEM, "labels": {"app": "istiod", "istio": "pilot"}},
    }
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    server.put(
        {
            **pod,
            "status": {"phase": "Pending", "containerStatuses": [{"name": "discovery", "state": {"waiting": waiting}}]},
        }
    )
    about = {"kind": "Pod", "namespace": SYSTEM, "name": "istiod-1"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": SYSTEM},
        "involvedObject": about,
        "type": "Warning",
    }
    server.put({**event, "reason": "Failed", "message": "no such host"})
    server.store.on_change.clear()
    server.store.on_change.append(server.apply_definition)
    Controllers(server, lambda plain: plain["metadata"]["name"] != "istiod")
    told: list[StepProgress] = []
    outcome = await Installer(objects_of(server), WaitOptions(timeout=0.05, interval=0.001), told.append).install(
        plan("profile=default")
    )
    assert [failure.step for failure in outcome.failures] == ["Pilot", "IngressGateways istio-ingressgateway"]
    assert outcome.failures[0].reason == "not ready after 0.05 s: Deployment istio-system/istiod: 0 of 1 pods ready"
    assert outcome.failures[0].details == (
        "pod istio-system/istiod-1, container discovery: ImagePullBackOff: Back-off pulling image",
        "  check that the image exists and that nodes can pull it: hub, tag and values.global.imagePullSecrets",
        "  Failed: no such host",
    )
    assert outcome.failures[1].reason == "not installed, because Pilot failed"
    assert {progress.step for progress in told if progress.failed} == {"Pilot"}


async def test_what_fails_in_passing_is_asked_again(server: ApiServer) -> None:
    server.faults.refuse(500, times=2)
    server.faults.refuse(429, times=2, matching=lambda asked: asked.verb == "patch")
    await installed(objects_of(server))
    assert server.faults.spent


async def test_a_dry_run_changes_nothing(server: ApiServer) -> None:
    outcome = await Installer(objects_of(server, dry_run=True), WAITS).install(plan("profile=demo"))
    assert outcome.failures == ()
    assert state_of(server) == {}


# -- webhooks --------------------------------------------------------------------------------------------------------------


async def test_webhooks_that_would_inject_the_same_pods_are_found(server: ApiServer) -> None:
    objects = objects_of(server)
    await install(
        objects,
        plan("profile=minimal", "values.global.istioNamespace=other", "values.global.operatorManageWebhooks=true"),
    )
    installer = Installer(objects, WAITS)
    own = await installer.find_conflicts(plan("profile=minimal", "revision=r2"))
    assert own == []
    handmade = copy.deepcopy(
        server.get("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "istio-revision-tag-x")
    )
    assert handmade is None
    mine = next(
        p
        for step in plan("profile=minimal", "revision=r2").steps
        for p in step.objects
        if p["kind"] == "MutatingWebhookConfiguration"
    )
    server.put({**mine, "metadata": {"name": "of-somebody", "labels": {"istio.io/rev": "r9"}}})
    found = await installer.find_conflicts(plan("profile=minimal", "revision=r2"))
    assert len(found) == 1
    assert found[0].startswith(
        "istio-sidecar-injector-r2 and of-somebody (revision r9) would both inject pods labelled "
    )


async def test_a_validating_webhook_that_was_made_strict_stays_so(server: ApiServer) -> None:
    await installed(objects_of(server))
    name = "istio-validator-istio-system"
    there = copy.deepcopy(server.get("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", name))
    assert there is not None
    assert there["webhooks"][0]["failurePolicy"] == "Ignore"
    there["webhooks"][0]["failurePolicy"] = "Fail"
    there["webhooks"][0]["clientConfig"]["caBundle"] = "QUJD"
    server.put(there)
    await changed(objects_of(server))
    after = server.get("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", name)
    assert after is not None
    assert after["webhooks"][0]["failurePolicy"] == "Fail"
    assert after["webhooks"][0]["clientConfig"]["caBundle"] == "QUJD"


async def test_a_second_revision_leaves_the_default_tag_to_the_first(server: ApiServer) -> None:
    objects = objects_of(server)
    await install(objects, plan("profile=minimal", "revision=r1"))
    await install(objects, plan("profile=minimal", "revision=r2"))
    assert state_of(server)[TAG_WEBHOOK]["metadata"]["labels"]["istio.io/rev"] == "r1"


async def test_a_tag_needs_its_revision_and_is_not_moved_unasked(server: ApiServer) -> None:
    objects = objects_of(server)
    with pytest.raises(TagError, match="revision r1 is not installed; installed revisions: none"):
        await build_tag_objects(objects, RevisionTag("prod", "r1", SYSTEM))
    await install(objects, plan("profile=minimal", "revision=r1"))
    await apply_tag(
        objects, await build_tag_objects(objects, RevisionTag("prod", "r1", SYSTEM, name="own-name"), overwrite=False)
    )
    assert "MutatingWebhookConfiguration/own-name" in state_of(server)
    with pytest.raises(TagError, match="tag prod already points to revision r1; use --overwrite to change it"):
        await build_tag_objects(objects, RevisionTag("prod", "r1", SYSTEM), overwrite=False)
    with pytest.raises(TagError, match="r1 is the name of a revision"):
        await build_tag_objects(objects, RevisionTag("r1", "r1", SYSTEM))


# -- verification ----------------------------------------------------------------------------------------------------------


async def test_what_is_missing_or_changed_is_found(server: ApiServer) -> None:
    await installed(objects_of(server))
    trial = objects_of(server, dry_run=True)
    assert [str(c) for c in await verify_plan(trial, plan(*FIRST)) if c.problem] == []
    service = copy.deepcopy(server.get("", "services", SYSTEM, "istiod"))
    assert service is not None
    service["spec"]["ports"][0]["port"] = 1
    server.put(service)
    server.delete({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": SYSTEM}})
    wrong = {str(c.key): c.problem for c in await verify_plan(trial, plan(*FIRST)) if c.problem}
    assert wrong == {
        f"Service {SYSTEM}/istiod": "spec.ports differs from the installation",
        f"ConfigMap {SYSTEM}/istio": "not found",
    }
    assert all(not c.problem for c in await verify_revision(objects_of(server), "default"))
