"""An installation at an API server: install, change, upgrade by tag, uninstall, and interruptions."""

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

pytestmark = pytest.mark.slow

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
    api_server = await start_server()
    yield api_server
    await api_server.stop()


async def start_server(objects: list[Plain] = []) -> ApiServer:  # noqa: B006
    server = ApiServer()
    for plain in objects:
        server.put(plain)
    Controllers(server)
    await server.start()
    return server


# -- stages of a control plane, each of which may be repeated --------------------------------------------------------------


async def install_first(objects: ObjectClient) -> None:
    await install(objects, plan(*FIRST))


async def install_changed(objects: ObjectClient) -> None:
    await install(objects, plan(*CHANGED))


async def upgrade(objects: ObjectClient) -> None:
    await install(objects, plan(*SECOND))
    for name in ("prod", "default"):
        await apply_tag(objects, await build_tag_objects(objects, RevisionTag(name, "r2", SYSTEM)))


async def uninstall_default(objects: ObjectClient) -> None:
    await delete_objects(objects, await uninstallation_of_revision(objects, "default"))


STAGES: tuple[Work, ...] = (install_first, install_changed, upgrade, uninstall_default)


def with_default_tag(expected: State, state: State, revision: str) -> State:
    """Return the expected state when the default tag replaces the webhooks of the revision `default`."""
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
    deactivated_injector = {INJECTOR: deactivated(expected[INJECTOR])} if INJECTOR in expected else {}
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    tag_service = state[f"Service/{SYSTEM}/istiod-revision-tag-default"]
    labels = tag_service["metadata"]["labels"]
    assert (labels[TAG], labels["istio.io/rev"]) == ("default", revision)
    selected = {"istio": "pilot"} if revision == "default" else {"istio.io/rev": revision}
    assert tag_service["spec"]["selector"] == {"app": "istiod", **selected}
    return {
        **expected,
        **deactivated_injector,
        f"Service/{SYSTEM}/istiod-revision-tag-default": tag_service,
        TAG_WEBHOOK: tag,
        VALIDATOR: state[VALIDATOR],
        f"Namespace/{SYSTEM}": system,
    }


async def test_each_stage_equals_the_generated_manifest(server: ApiServer) -> None:
    objects = objects_of(server)
    await install_first(objects)
    state = state_of(server)
    assert state == with_default_tag(expected_of(light_installation(*FIRST)), state, "default")

    await install_changed(objects)
    state = state_of(server)
    assert state == with_default_tag(expected_of(light_installation(*CHANGED)), state, "default")

    await upgrade(objects)
    state = state_of(server)
    second = expected_of(light_installation(*SECOND), revision="r2")
    both = {**expected_of(light_installation(*CHANGED)), **second}
    prod = {
        name: state[name]
        for name in (
            "MutatingWebhookConfiguration/istio-revision-tag-prod",
            f"Service/{SYSTEM}/istiod-revision-tag-prod",
        )
    }
    assert state == {**with_default_tag(both, state, "r2"), **prod}

    await uninstall_default(objects)
    state = state_of(server)
    assert state == {**with_default_tag(second, state, "r2"), **prod}

    await delete_objects(objects, await uninstallation_of_everything(objects))
    assert set(state_of(server)) == {f"Namespace/{SYSTEM}"}


@pytest.mark.parametrize("stage", range(len(STAGES)), ids=[work.__name__ for work in STAGES])
async def test_interrupted_stage_is_completed_by_the_next_run(stage: int) -> None:
    """Interrupt each stage at thirteen random points."""
    rng = random.Random(stage)
    server = await start_server()
    for work in STAGES[:stage]:
        await work(objects_of(server))
    initial = snapshot(server)
    counter = CrashingClient(server, 10**9, False)
    await STAGES[stage](objects_of(server, counter))
    expected = state_of(server)
    await server.stop()
    for _ in range(13):
        server = await start_server(initial)
        client = CrashingClient(server, rng.randint(1, counter.requests), rng.random() < 0.5)
        with pytest.raises(Crash):
            await STAGES[stage](objects_of(server, client))
        await STAGES[stage](objects_of(server))
        assert state_of(server) == expected
        await server.stop()


async def test_second_install_is_a_no_op(server: ApiServer) -> None:
    await install_first(objects_of(server))
    revision = server.store.revision
    await install_first(objects_of(server))
    assert server.store.revision == revision


async def test_order_of_components(server: ApiServer) -> None:
    await install(objects_of(server), plan("profile=ambient", "components.ingressGateways[0].name=edge"))
    applied = [
        request.name
        for request in server.requests
        if request.verb == "patch" and request.resource.plural in ("deployments", "daemonsets")
    ]
    assert applied.index("istiod") < applied.index("edge")
    assert applied.index("istio-cni-node") < applied.index("ztunnel")
    kinds = [request.resource.plural for request in server.requests if request.verb == "patch"]
    assert kinds.index("customresourcedefinitions") < kinds.index("deployments")


async def test_network_label_of_the_system_namespace(server: ApiServer) -> None:
    await install(objects_of(server), plan("profile=minimal", "values.global.network=east"))
    assert state_of(server)[f"Namespace/{SYSTEM}"]["metadata"]["labels"] == {"topology.istio.io/network": "east"}


async def test_only_objects_of_the_same_revision_and_owner_are_pruned(server: ApiServer) -> None:
    objects = objects_of(server)
    await install(objects, plan("profile=default", "revision=r1"))
    foreign = copy.deepcopy(server.get("", "configmaps", SYSTEM, "istio-r1"))
    assert foreign is not None
    not_pruned = {
        **foreign,
        "metadata": {
            **foreign["metadata"],
            "name": "kept",
            "labels": {**foreign["metadata"]["labels"], NOT_PRUNED: "true"},
        },
    }
    owner_label = {"install.operator.istio.io/owning-resource": "somebody"}
    other_owner = {
        **foreign,
        "metadata": {
            **foreign["metadata"],
            "name": "others",
            "labels": {**foreign["metadata"]["labels"], **owner_label},
        },
    }
    obsolete = {**foreign, "metadata": {**foreign["metadata"], "name": "obsolete"}}
    owned = {
        **obsolete,
        "metadata": {
            **obsolete["metadata"],
            "name": "made",
            "ownerReferences": [{"kind": "X", "name": "y", "uid": "1"}],
        },
    }
    for plain in (not_pruned, other_owner, obsolete, owned):
        server.put(plain)
    await install(objects, plan("profile=minimal", "revision=r2"))
    assert server.get("", "configmaps", SYSTEM, "obsolete") is not None
    outcome = await install(objects, plan("profile=default", "revision=r1"))
    assert [str(key) for key in outcome.pruned] == [f"ConfigMap {SYSTEM}/obsolete"]


async def test_failed_component_is_reported_with_pod_and_events(server: ApiServer) -> None:
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
    involved_object = {"kind": "Pod", "namespace": SYSTEM, "name": "istiod-1"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": SYSTEM},
        "involvedObject": involved_object,
        "type": "Warning",
    }
    server.put({**event, "reason": "Failed", "message": "no such host"})
    server.store.on_change.clear()
    server.store.on_change.append(server.apply_definition)
    Controllers(server, lambda plain: plain["metadata"]["name"] != "istiod")
    reports: list[StepProgress] = []
    outcome = await Installer(objects_of(server), WaitOptions(timeout=0.05, interval=0.001), reports.append).install(
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
    assert {progress.step for progress in reports if progress.failed} == {"Pilot"}


async def test_temporary_errors_are_retried(server: ApiServer) -> None:
    server.faults.refuse(500, times=2)
    server.faults.refuse(429, times=2, matching=lambda request: request.verb == "patch")
    await install_first(objects_of(server))
    assert server.faults.spent


async def test_dry_run_changes_nothing(server: ApiServer) -> None:
    outcome = await Installer(objects_of(server, dry_run=True), WAITS).install(plan("profile=demo"))
    assert outcome.failures == ()
    assert state_of(server) == {}


# -- webhooks --------------------------------------------------------------------------------------------------------------


async def test_conflicting_webhooks_are_reported(server: ApiServer) -> None:
    objects = objects_of(server)
    await install(
        objects,
        plan("profile=minimal", "values.global.istioNamespace=other", "values.global.operatorManageWebhooks=true"),
    )
    installer = Installer(objects, WAITS)
    before = await installer.find_conflicts(plan("profile=minimal", "revision=r2"))
    assert before == []
    absent = copy.deepcopy(
        server.get("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "istio-revision-tag-x")
    )
    assert absent is None
    webhook = next(
        p
        for step in plan("profile=minimal", "revision=r2").steps
        for p in step.objects
        if p["kind"] == "MutatingWebhookConfiguration"
    )
    server.put({**webhook, "metadata": {"name": "other-injector", "labels": {"istio.io/rev": "r9"}}})
    conflicts = await installer.find_conflicts(plan("profile=minimal", "revision=r2"))
    assert len(conflicts) == 1
    assert conflicts[0].startswith(
        "istio-sidecar-injector-r2 and other-injector (revision r9) would both inject pods labelled "
    )


async def test_strict_validating_webhook_stays_strict(server: ApiServer) -> None:
    await install_first(objects_of(server))
    name = "istio-validator-istio-system"
    webhook = copy.deepcopy(server.get("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", name))
    assert webhook is not None
    assert webhook["webhooks"][0]["failurePolicy"] == "Ignore"
    webhook["webhooks"][0]["failurePolicy"] = "Fail"
    webhook["webhooks"][0]["clientConfig"]["caBundle"] = "QUJD"
    server.put(webhook)
    await install_changed(objects_of(server))
    after = server.get("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", name)
    assert after is not None
    assert after["webhooks"][0]["failurePolicy"] == "Fail"
    assert after["webhooks"][0]["clientConfig"]["caBundle"] == "QUJD"


async def test_second_revision_keeps_the_default_tag(server: ApiServer) -> None:
    objects = objects_of(server)
    await install(objects, plan("profile=minimal", "revision=r1"))
    await install(objects, plan("profile=minimal", "revision=r2"))
    assert state_of(server)[TAG_WEBHOOK]["metadata"]["labels"]["istio.io/rev"] == "r1"


async def test_tag_requires_its_revision_and_overwrite(server: ApiServer) -> None:
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


async def test_verification(server: ApiServer) -> None:
    await install_first(objects_of(server))
    dry_run = objects_of(server, dry_run=True)
    assert [str(c) for c in await verify_plan(dry_run, plan(*FIRST)) if c.problem] == []
    service = copy.deepcopy(server.get("", "services", SYSTEM, "istiod"))
    assert service is not None
    service["spec"]["ports"][0]["port"] = 1
    server.put(service)
    server.delete({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": SYSTEM}})
    problems = {str(c.key): c.problem for c in await verify_plan(dry_run, plan(*FIRST)) if c.problem}
    assert problems == {
        f"Service {SYSTEM}/istiod": "spec.ports differs from the installation",
        f"ConfigMap {SYSTEM}/istio": "not found",
    }
    assert all(not c.problem for c in await verify_revision(objects_of(server), "default"))
