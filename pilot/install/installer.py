"""The installer: applies components in the order of their dependencies, waits until they are ready, and prunes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.operator.settings_tree import value_at
from pilot.install.diagnosis import diagnose
from pilot.install.injectors import (
    DEFAULT_TAG,
    VALIDATING,
    deactivated,
    injection_conflicts,
    is_injector,
    revision_of,
    tag_of,
)
from pilot.install.install_plan import InstallPlan, Step
from pilot.install.installation_labels import DEFAULT
from pilot.install.object_readiness import KINDS_WITH_READINESS, WORKLOADS, unready_reason
from pilot.install.prune import prune
from pilot.install.tag_webhooks import (
    NAMESPACE,
    RevisionTag,
    TagError,
    apply_tag,
    build_tag_objects,
    list_injectors,
    with_existing_policies,
)
from pilot.kube.api_errors import ApiError, KubeError, NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, resource_key

Plain = dict[str, Any]
NETWORK = "topology.istio.io/network"


class StepProgress(NamedTuple):
    """The progress of a step.

    `done` of `total` objects are applied and ready. `message` is the object in progress, or the reason for waiting.
    `seconds` is the time since the step started.
    """

    step: str
    done: int
    total: int
    message: str
    seconds: float
    finished: bool = False
    failed: bool = False


class StepFailure(NamedTuple):
    """The failure of a step. The title of the step identifies it. `details` are the likely causes, one per line."""

    step: str
    reason: str
    details: tuple[str, ...] = ()


class InstallOutcome(NamedTuple):
    """The outcome of an installation. `warnings` are failures after all components were ready, such as failures to
    prune."""

    failures: tuple[StepFailure, ...]
    pruned: tuple[ResourceKey, ...]
    warnings: tuple[str, ...]


class WaitOptions(NamedTuple):
    """Limits for waiting, in seconds: the maximum time for each component to become ready, and the polling interval."""

    timeout: float = 300.0
    interval: float = 2.0


def _ignore(_: StepProgress) -> None:
    """Discard progress."""


class Installer:
    """Installs plans into one cluster.

    `report` is called with the progress. `namespaces` restricts the search for obsolete objects. None means all
    namespaces.
    """

    def __init__(
        self,
        objects: ObjectClient,
        wait: WaitOptions = WaitOptions(),
        report: Callable[[StepProgress], None] = _ignore,
        package: Traversable | None = None,
        namespaces: Sequence[str] | None = None,
    ) -> None:
        self._objects, self._wait, self._report = objects, wait, report
        self._package, self._namespaces = package, namespaces

    async def find_conflicts(self, plan: InstallPlan) -> list[str]:
        """Return a message for each existing webhook configuration that would inject the same pods as the plan's."""
        planned = [plain for step in plan.steps for plain in step.objects]
        injectors = await list_injectors(self._objects)
        replaced = {plain["metadata"]["name"] for plain in planned}
        if await self._becomes_default(plan):
            replaced |= {
                plain["metadata"]["name"]
                for plain in injectors
                if tag_of(plain) == DEFAULT or revision_of(plain) == DEFAULT
            }
        return injection_conflicts(planned, [plain for plain in injectors if plain["metadata"]["name"] not in replaced])

    async def install(self, plan: InstallPlan, keep: frozenset[ResourceKey] = frozenset()) -> InstallOutcome:
        """Apply a plan, wait until it is ready, and prune all obsolete objects except those in `keep`.

        Raises KubeError if the namespaces cannot be created.
        """
        becomes_default = await self._becomes_default(plan)
        plan = await self.with_webhook_state(plan)
        await self._create_namespaces(plan)
        failures = await self._run_steps(plan)
        if failures:
            return InstallOutcome(tuple(failures), (), ())
        warnings = []
        if becomes_default:
            try:
                await self._set_default_tag(plan)
            except (TagError, KubeError) as error:
                warnings.append(f"cannot set the tag default: {error}")
        try:
            pruned = await prune(self._objects, plan.owner.selector(), plan.keys() | keep, self._namespaces)
        except KubeError as error:
            pruned = []
            warnings.append(f"cannot prune obsolete objects: {error}")
        return InstallOutcome((), tuple(pruned), tuple(warnings))

    # -- preparation ---------------------------------------------------------------------------------------------------

    async def _becomes_default(self, plan: InstallPlan) -> bool:
        """Return whether the control plane becomes the default, because its revision is `default` or the only one."""
        injectors = [plain for step in plan.steps for plain in step.objects if is_injector(plain)]
        if not injectors or value_at(plan.operator, "spec.values.global.operatorManageWebhooks"):
            return False
        if plan.owner.revision == DEFAULT:
            return True
        existing = await list_injectors(self._objects)
        return all(revision_of(plain) == plan.owner.revision for plain in existing)

    async def with_webhook_state(self, plan: InstallPlan) -> InstallPlan:
        """Return the plan with changes preserved that were made to webhooks after their installation.

        They are the failure policies of validating webhooks, and the deactivation of injectors by the tag `default`.
        """
        steps = []
        has_injectors = any(is_injector(plain) for step in plan.steps for plain in step.objects)
        has_default_tag = has_injectors and any(
            tag_of(plain) == DEFAULT for plain in await list_injectors(self._objects)
        )
        for step in plan.steps:
            objects = []
            for plain in step.objects:
                if plain["kind"] == VALIDATING.name:
                    plain = with_existing_policies(plain, await self._objects.get(resource_key(plain)))
                elif has_default_tag and is_injector(plain) and not tag_of(plain) and revision_of(plain) == DEFAULT:
                    plain = deactivated(plain)
                objects.append(plain)
            steps.append(step._replace(objects=tuple(objects)))
        return plan._replace(steps=tuple(steps))

    async def _create_namespaces(self, plan: InstallPlan) -> None:
        for name in plan.namespaces():
            namespace = await self._objects.get(ResourceKey(NAMESPACE, "", name))
            labels = {NETWORK: plan.network} if plan.network and name == plan.system else {}
            if namespace is not None and (reason := unready_reason(namespace)):
                raise KubeError(f"the namespace {name} is {reason}")
            if namespace is None or not labels.items() <= (namespace["metadata"].get("labels") or {}).items():
                metadata = {"name": name, **({"labels": labels} if labels else {})}
                await self._objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _run_steps(self, plan: InstallPlan) -> list[StepFailure]:
        """Run all steps and return the failures. Each step runs after its dependencies."""
        completed = {step.title: asyncio.get_running_loop().create_future() for step in plan.steps}

        async def run(step: Step) -> StepFailure | None:
            results = [await completed[dependency.title] for dependency in plan.dependencies_of(step)]
            failed = [failure.step for failure in results if failure is not None]
            failure = (
                StepFailure(step.title, f"not installed, because {', '.join(failed)} failed")
                if failed
                else await self.install_step(step)
            )
            completed[step.title].set_result(failure)
            return failure

        tasks = [asyncio.create_task(run(step), name=f"install {step.title}") for step in plan.steps]
        try:
            return [failure for failure in await asyncio.gather(*tasks) if failure is not None]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def install_step(self, step: Step) -> StepFailure | None:
        """Apply the objects of one step and wait until they are ready. Returns the failure, or None if the step
        succeeded."""
        start_time = asyncio.get_running_loop().time()
        total = len(step.objects)
        unready: dict[ResourceKey, Plain] = {}
        done = 0

        def report(message: str, finished: bool = False, failed: bool = False) -> None:
            seconds = asyncio.get_running_loop().time() - start_time
            self._report(StepProgress(step.title, done, total, message, seconds, finished, failed))

        for plain in step.objects:
            key = resource_key(plain)
            report(str(key))
            try:
                applied = await self._objects.apply(plain)
            except KubeError as error:
                # A dry run creates neither the namespace nor the definition of the object.
                if self._objects.dry_run and isinstance(error, NotFound | UnknownKind):
                    done += 1
                    continue
                report(str(error), failed=True)
                return StepFailure(step.title, f"{key}: {error}", _advice(error, key))
            if key.kind.name in KINDS_WITH_READINESS and not self._objects.dry_run and unready_reason(applied):
                unready[key] = applied
            else:
                done += 1
        while unready:
            for key in list(unready):
                current = await self._poll(key)
                if current is not None:
                    unready[key] = current
                    if not unready_reason(current):
                        del unready[key]
                        done += 1
            if not unready:
                break
            reasons = ", ".join(f"{key}: {unready_reason(plain)}" for key, plain in unready.items())
            if asyncio.get_running_loop().time() - start_time > self._wait.timeout:
                report(reasons, failed=True)
                return StepFailure(
                    step.title,
                    f"not ready after {self._wait.timeout:g} s: {reasons}",
                    tuple(await self._diagnose(unready.values())),
                )
            report(reasons)
            await asyncio.sleep(self._wait.interval)
        report("", finished=True)
        return None

    async def _poll(self, key: ResourceKey) -> Plain | None:
        try:
            return await self._objects.get(key)
        except KubeError:  # polled again
            return None

    async def _diagnose(self, unready: Iterable[Plain]) -> list[str]:
        return [
            line for plain in unready if plain["kind"] in WORKLOADS for line in await diagnose(self._objects, plain)
        ]

    # -- completion ----------------------------------------------------------------------------------------------------

    async def _set_default_tag(self, plan: InstallPlan) -> None:
        everywhere = bool(value_at(plan.operator, "spec.values.sidecarInjectorWebhook.enableNamespacesByDefault"))
        tag = RevisionTag(DEFAULT, plan.owner.revision, plan.system, DEFAULT_TAG, everywhere)
        if not self._objects.dry_run:
            await apply_tag(self._objects, await build_tag_objects(self._objects, tag, self._package))


def _advice(error: KubeError, key: ResourceKey) -> tuple[str, ...]:
    if isinstance(error, ApiError) and error.code == 403:
        location = f"in the namespace {key.namespace}" if key.namespace else "in the cluster"
        return (f"the user needs permission to create and patch {key.kind.name} objects {location}",)
    return ()
