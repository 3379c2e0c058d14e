"""Installations on the API server of the tests: what is put there, what there should be, and clients that end in the middle."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

from deploy.operator.inputs import user_settings
from deploy.operator.manifest import Installation, render_installation
from pilot.install.install_plan import InstallPlan, build_install_plan
from pilot.install.installation_labels import COMPONENT, MANAGED, OWNER, OWNER_NAMESPACE, REVISION, VERSION
from pilot.install.installer import Installer, InstallOutcome, WaitOptions
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.object_client import ObjectClient, RetryPolicy
from pilot.lib.backoff import Backoff
from pilot.lib.build_info import build_info
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import Known, chance, client_of

Plain = dict[str, Any]
State = dict[str, Plain]
SYSTEM = "istio-system"
WAITS = WaitOptions(timeout=20.0, interval=0.001)
PATIENCE = RequestTimeouts(connect=10.0, response=30.0)
RETRY = RetryPolicy(5, Backoff(0.0005, 0.002))
_KEPT = ("virtualservices.networking.istio.io", "envoyfilters.networking.istio.io")
_OF_SERVER = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


@functools.cache
def installation(*assignments: str) -> Installation:
    """The installation of settings; nobody may change its objects."""
    return render_installation(user_settings((), assignments), lambda _: None)


@functools.cache
def few_definitions() -> str:
    """A setting that leaves out the definitions of most kinds: a server takes long to read them."""
    names = [
        o["metadata"]["name"]
        for o in installation("profile=minimal").objects(["Base"])
        if o["kind"] == "CustomResourceDefinition"
    ]
    return ",".join(name for name in names if name not in _KEPT)


def light(*assignments: str) -> Installation:
    """The installation of settings with few definitions."""
    excluded = [f"values.base.excludedCRDs[{i}]={name}" for i, name in enumerate(few_definitions().split(","))]
    return installation(*assignments, *excluded)


def objects_of(server: ApiServer, client: ApiClient | None = None, dry_run: bool = False) -> ObjectClient:
    return ObjectClient(
        client or client_of(server, PATIENCE), "istio-operator", chance(1), dry_run=dry_run, retry=RETRY
    )


async def install(objects: ObjectClient, plan: InstallPlan) -> InstallOutcome:
    """Install a plan, and nothing may go wrong."""
    outcome = await Installer(objects, WAITS).install(plan)
    assert outcome.failures == (), [failure[1:] for failure in outcome.failures]
    assert outcome.warnings == ()
    return outcome


def plan(*assignments: str) -> InstallPlan:
    return build_install_plan(light(*assignments))


def state_of(server: ApiServer) -> State:
    """Everything that a server has, without what it has added itself."""
    found = {}
    for resource in server.resources:
        for stored in server.store.collection(resource.id).objects.values():
            plain = {key: copy.deepcopy(value) for key, value in stored.plain.items() if key != "status"}
            plain["metadata"] = {key: value for key, value in plain["metadata"].items() if key not in _OF_SERVER}
            found[name_of(plain)] = plain
    return found


def name_of(plain: Mapping[str, Any]) -> str:
    metadata = plain["metadata"]
    return "/".join(filter(None, (plain["kind"], metadata.get("namespace"), metadata["name"])))


def expected_of(
    found: Installation, owner: str = "unknown", namespace: str = SYSTEM, revision: str = "default"
) -> State:
    """What `manifest generate` prints, with the labels of an installation and the defaults of a server."""
    expected = {}
    for chosen, objects in found.components:
        for generated in objects:
            plain = copy.deepcopy(generated)
            own = {
                MANAGED: "Reconcile",
                VERSION: build_info().version,
                OWNER: owner,
                OWNER_NAMESPACE: namespace,
                REVISION: revision,
            }
            plain["metadata"].setdefault("labels", {}).update(own, **{COMPONENT: chosen.component.name})
            if plain["kind"] == "Deployment":
                plain["spec"].setdefault("replicas", 1)
            expected[name_of(plain)] = plain
    return expected


def snapshot(server: ApiServer) -> list[Plain]:
    """The objects of a server, definitions first."""
    resources = sorted(server.resources, key=lambda resource: resource.plural != "customresourcedefinitions")
    return [
        copy.deepcopy(stored.plain)
        for resource in resources
        for stored in server.store.collection(resource.id).objects.values()
    ]


class Killed(BaseException):
    """A process has ended."""


class MortalClient(ApiClient):
    """A client whose process ends with its n-th request: before the server has it, or before the answer is there."""

    def __init__(self, server: ApiServer, at: int, after: bool) -> None:
        super().__init__(Known(server), timeouts=PATIENCE)
        self.requests, self._at, self._after = 0, at, after

    async def call(self, *arguments: Any, **more: Any) -> bytes:
        self.requests += 1
        if self.requests >= self._at and not self._after:
            raise Killed
        answer = await super().call(*arguments, **more)
        if self.requests >= self._at:
            raise Killed
        return answer
