"""Installations on the API server of the tests: plans, the actual and the expected state, and clients that crash."""

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
from testing.kube.kube_access import StaticAccess, client_of, make_rng

Plain = dict[str, Any]
State = dict[str, Plain]
SYSTEM = "istio-system"
WAITS = WaitOptions(timeout=20.0, interval=0.001)
TIMEOUTS = RequestTimeouts(connect=10.0, response=30.0)
RETRY = RetryPolicy(5, Backoff(0.0005, 0.002))
_INCLUDED_CRDS = ("virtualservices.networking.istio.io", "envoyfilters.networking.istio.io")
_SERVER_FIELDS = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


@functools.cache
def installation(*assignments: str) -> Installation:
    """Return the installation of settings. It is cached, so do not modify its objects."""
    return render_installation(user_settings((), assignments).plain, lambda _: None)


@functools.cache
def excluded_crds() -> str:
    """Return the value of a setting that excludes most CustomResourceDefinitions, which take a server long to read."""
    names = [
        o["metadata"]["name"]
        for o in installation("profile=minimal").objects(["Base"])
        if o["kind"] == "CustomResourceDefinition"
    ]
    return ",".join(name for name in names if name not in _INCLUDED_CRDS)


def light_installation(*assignments: str) -> Installation:
    """Return the installation of settings with few CustomResourceDefinitions."""
    excluded = [f"values.base.excludedCRDs[{i}]={name}" for i, name in enumerate(excluded_crds().split(","))]
    return installation(*assignments, *excluded)


def objects_of(server: ApiServer, client: ApiClient | None = None, dry_run: bool = False) -> ObjectClient:
    """Return a client for the objects of a server."""
    return ObjectClient(
        client or client_of(server, TIMEOUTS), "istio-operator", make_rng(1), dry_run=dry_run, retry=RETRY
    )


async def install(objects: ObjectClient, plan: InstallPlan) -> InstallOutcome:
    """Install a plan, and check that there are no failures or warnings."""
    outcome = await Installer(objects, WAITS).install(plan)
    assert outcome.failures == (), [failure[1:] for failure in outcome.failures]
    assert outcome.warnings == ()
    return outcome


def plan(*assignments: str) -> InstallPlan:
    """Return the install plan of settings, with few CustomResourceDefinitions."""
    return build_install_plan(light_installation(*assignments))


def state_of(server: ApiServer) -> State:
    """Return all objects of a server, without the fields that the server adds."""
    state = {}
    for resource in server.resources:
        for stored in server.store.collection(resource.id).objects.values():
            plain = {key: copy.deepcopy(value) for key, value in stored.plain.items() if key != "status"}
            plain["metadata"] = {key: value for key, value in plain["metadata"].items() if key not in _SERVER_FIELDS}
            state[name_of(plain)] = plain
    return state


def name_of(plain: Mapping[str, Any]) -> str:
    metadata = plain["metadata"]
    return "/".join(filter(None, (plain["kind"], metadata.get("namespace"), metadata["name"])))


def expected_of(
    source: Installation, owner: str = "unknown", namespace: str = SYSTEM, revision: str = "default"
) -> State:
    """Return the objects of `manifest generate`, with the labels of an installation and the server's defaults."""
    expected = {}
    for component, objects in source.components:
        for generated in objects:
            plain = copy.deepcopy(generated)
            labels = {
                MANAGED: "Reconcile",
                VERSION: build_info().version,
                OWNER: owner,
                OWNER_NAMESPACE: namespace,
                REVISION: revision,
            }
            plain["metadata"].setdefault("labels", {}).update(labels, **{COMPONENT: component.component.name})
            if plain["kind"] == "Deployment":
                plain["spec"].setdefault("replicas", 1)
            expected[name_of(plain)] = plain
    return expected


def snapshot(server: ApiServer) -> list[Plain]:
    """Return the objects of a server, CustomResourceDefinitions first."""
    resources = sorted(server.resources, key=lambda resource: resource.plural != "customresourcedefinitions")
    return [
        copy.deepcopy(stored.plain)
        for resource in resources
        for stored in server.store.collection(resource.id).objects.values()
    ]


class Crash(BaseException):
    """The process has crashed."""


class CrashingClient(ApiClient):
    """A client whose process crashes at its n-th request: before the server receives it, or before the response
    arrives.
    """

    def __init__(self, server: ApiServer, crash_at: int, after_response: bool) -> None:
        super().__init__(StaticAccess(server), timeouts=TIMEOUTS)
        self.requests, self._crash_at, self._after_response = 0, crash_at, after_response

    async def call(self, *arguments: Any, **more: Any) -> bytes:
        self.requests += 1
        if self.requests >= self._crash_at and not self._after_response:
            raise Crash
        response = await super().call(*arguments, **more)
        if self.requests >= self._crash_at:
            raise Crash
        return response
