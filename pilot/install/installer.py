"""An installation put into a cluster: components in their order, each applied and waited for; then what is left over is taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from deploy.operator.settings_tree import value_at
from pilot.install.diagnosis import causes
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
from pilot.install.object_readiness import WAITED_FOR, WORKLOADS, unready_reason
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
from pilot.kube.errors import ApiError, KubeError, NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, resource_key

Plain = dict[str, Any]
NETWORK = "topology.istio.io/network"


class StepProgress(NamedTuple):
    """How far a step is: `done` of `total` objects are applied and ready; `now` says what it does or waits for. `seconds` is since its begin."""

    step: str
    done: int
    total: int
    now: str
    seconds: float
    finished: bool = False
    failed: bool = False


class StepFailure(NamedTuple):
    """Why a step, named by its title, failed; `causes` are what is known about it, a line each."""

    step: str
    reason: str
    causes: tuple[str, ...] = ()


class InstallOutcome(NamedTuple):
    """What became of an installation: the steps that failed, what was pruned, and what could not be done although all components are there."""

    failures: tuple[StepFailure, ...]
    pruned: tuple[ResourceKey, ...]
    warnings: tuple[str, ...]


class WaitOptions(NamedTuple):
    """Seconds: how long each component may take to come up, and between two looks."""

    ready: float = 300.0
    look: float = 2.0


def _ignore(_: StepProgress) -> None:
    """Shows nothing."""


class Installer:
    """Puts plans into one cluster. `report` is told of progress. `namespaces`: objects are looked for in these alone, None for everywhere."""

    def __init__(
        self,
        objects: ObjectClient,
        waits: WaitOptions = WaitOptions(),
        report: Callable[[StepProgress], None] = _ignore,
        package: Traversable | None = None,
        namespaces: Sequence[str] | None = None,
    ) -> None:
        self._objects, self._waits, self._report, self._package, self._namespaces = (
            objects,
            waits,
            report,
            package,
            namespaces,
        )

    async def find_conflicts(self, plan: InstallPlan) -> list[str]:
        """Returns which injection webhooks that are there would inject what those of the plan do."""
        ours = [plain for step in plan.steps for plain in step.objects]
        there = await list_injectors(self._objects)
        own = {plain["metadata"]["name"] for plain in ours}
        if await self._takes_default(plan):
            own |= {
                plain["metadata"]["name"]
                for plain in there
                if tag_of(plain) == DEFAULT or revision_of(plain) == DEFAULT
            }
        return injection_conflicts(ours, [plain for plain in there if plain["metadata"]["name"] not in own])

    async def install(self, plan: InstallPlan, keep: frozenset[ResourceKey] = frozenset()) -> InstallOutcome:
        """Applies a plan, waits for it, and prunes. What `keep` names is not pruned. KubeError where namespaces cannot be made."""
        takes_default = await self._takes_default(plan)
        plan = await self.with_webhook_state(plan)
        await self._make_namespaces(plan)
        failures = await self._run(plan)
        if failures:
            return InstallOutcome(tuple(failures), (), ())
        warnings = []
        if takes_default:
            try:
                await self._set_default(plan)
            except (TagError, KubeError) as error:
                warnings.append(f"the tag default is not set: {error}")
        try:
            pruned = await prune(self._objects, plan.owner.selector(), plan.keys() | keep, self._namespaces)
        except KubeError as error:
            pruned = []
            warnings.append(f"what is left over is not pruned: {error}")
        return InstallOutcome((), tuple(pruned), tuple(warnings))

    # -- before --------------------------------------------------------------------------------------------------------

    async def _takes_default(self, plan: InstallPlan) -> bool:
        """Returns whether the plan's control plane becomes the one of namespaces that name no revision: it has no revision, or is alone."""
        ours = [plain for step in plan.steps for plain in step.objects if is_injector(plain)]
        if not ours or value_at(plan.operator, "spec.values.global.operatorManageWebhooks"):
            return False
        if plan.owner.revision == DEFAULT:
            return True
        there = await list_injectors(self._objects)
        return all(revision_of(plain) == plan.owner.revision for plain in there)

    async def with_webhook_state(self, plan: InstallPlan) -> InstallPlan:
        """Returns the plan with what has become of webhooks since, so that it is not undone: the control plane makes those of validation strict,
        and the tag `default` takes the place of the revision of that name."""
        steps = []
        has_injectors = any(is_injector(plain) for step in plan.steps for plain in step.objects)
        has_tag = has_injectors and any(tag_of(plain) == DEFAULT for plain in await list_injectors(self._objects))
        for step in plan.steps:
            objects = []
            for plain in step.objects:
                if plain["kind"] == VALIDATING.name:
                    plain = with_existing_policies(plain, await self._objects.get(resource_key(plain)))
                elif has_tag and is_injector(plain) and not tag_of(plain) and revision_of(plain) == DEFAULT:
                    plain = deactivated(plain)
                objects.append(plain)
            steps.append(step._replace(objects=tuple(objects)))
        return plan._replace(steps=tuple(steps))

    async def _make_namespaces(self, plan: InstallPlan) -> None:
        for name in plan.namespaces():
            found = await self._objects.get(ResourceKey(NAMESPACE, "", name))
            labels = {NETWORK: plan.network} if plan.network and name == plan.system else {}
            if found is not None and (missing := unready_reason(found)):
                raise KubeError(f"the namespace {name} is {missing}")
            if found is None or not labels.items() <= (found["metadata"].get("labels") or {}).items():
                metadata = {"name": name, **({"labels": labels} if labels else {})}
                await self._objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    # -- components ----------------------------------------------------------------------------------------------------

    async def _run(self, plan: InstallPlan) -> list[StepFailure]:
        """Installs all steps, each after those that it waits for; returns those that failed."""
        ended = {step.title: asyncio.get_running_loop().create_future() for step in plan.steps}

        async def run(step: Step) -> StepFailure | None:
            before = [await ended[other.title] for other in plan.waits_for(step)]
            broken = [failure.step for failure in before if failure is not None]
            failure = (
                StepFailure(step.title, f"it waits for {', '.join(broken)}")
                if broken
                else await self.install_step(step)
            )
            ended[step.title].set_result(failure)
            return failure

        tasks = [asyncio.create_task(run(step), name=f"install {step.title}") for step in plan.steps]
        try:
            return [failure for failure in await asyncio.gather(*tasks) if failure is not None]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def install_step(self, step: Step) -> StepFailure | None:
        """Applies the objects of one step, and waits until they have come up; returns why they have not."""
        begun = asyncio.get_running_loop().time()
        total = len(step.objects)
        waiting: dict[ResourceKey, Plain] = {}
        done = 0

        def tell(now: str, finished: bool = False, failed: bool = False) -> None:
            self._report(
                StepProgress(step.title, done, total, now, asyncio.get_running_loop().time() - begun, finished, failed)
            )

        for plain in step.objects:
            key = resource_key(plain)
            tell(str(key))
            try:
                applied = await self._objects.apply(plain)
            except KubeError as error:
                if self._objects.dry_run and isinstance(
                    error, NotFound | UnknownKind
                ):  # its namespace or definition is not made in a dry run
                    done += 1
                    continue
                tell(str(error), failed=True)
                return StepFailure(step.title, f"{key}: {error}", _advice(error, key))
            if key.kind.name in WAITED_FOR and not self._objects.dry_run and unready_reason(applied):
                waiting[key] = applied
            else:
                done += 1
        while waiting:
            for key in list(waiting):
                found = await self._look(key)
                if found is not None:
                    waiting[key] = found
                    if not unready_reason(found):
                        del waiting[key]
                        done += 1
            if not waiting:
                break
            said = ", ".join(f"{key}: {unready_reason(plain)}" for key, plain in waiting.items())
            if asyncio.get_running_loop().time() - begun > self._waits.ready:
                tell(said, failed=True)
                return StepFailure(
                    step.title,
                    f"not ready after {self._waits.ready:g} s: {said}",
                    tuple(await self._causes(waiting.values())),
                )
            tell(said)
            await asyncio.sleep(self._waits.look)
        tell("", finished=True)
        return None

    async def _look(self, key: ResourceKey) -> Plain | None:
        try:
            return await self._objects.get(key)
        except KubeError:  # the next look may succeed
            return None

    async def _causes(self, late: Any) -> list[str]:
        return [line for plain in late if plain["kind"] in WORKLOADS for line in await causes(self._objects, plain)]

    # -- after ---------------------------------------------------------------------------------------------------------

    async def _set_default(self, plan: InstallPlan) -> None:
        everywhere = bool(value_at(plan.operator, "spec.values.sidecarInjectorWebhook.enableNamespacesByDefault"))
        wanted = RevisionTag(DEFAULT, plan.owner.revision, plan.system, DEFAULT_TAG, everywhere)
        if not self._objects.dry_run:
            await apply_tag(self._objects, await build_tag_objects(self._objects, wanted, self._package))


def _advice(error: KubeError, key: ResourceKey) -> tuple[str, ...]:
    if isinstance(error, ApiError) and error.code == 403:
        where = f"in the namespace {key.namespace}" if key.namespace else "in the cluster"
        return (f"whoever installs needs the right to create and patch {key.kind.name} {where}",)
    return ()
