"""The reconciler of one IstioOperator: installs it, corrects drift, and deletes its objects when it is deleted.

Each IstioOperator has its own reconciler, so that an IstioOperator that waits or fails does not delay the others.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from deploy.operator.errors import SettingsError
from deploy.operator.manifest import render_installation
from pilot.install.install_plan import InstallPlan, build_install_plan
from pilot.install.installer import Installer
from pilot.install.object_readiness import unready_reason
from pilot.install.prune import DEFINITION
from pilot.kube.api_errors import KubeError, NotFound
from pilot.kube.object_client import ResourceKey, resource_key
from pilot.lib.backoff import RetryDelays
from pilot.lib.logging.log import scope
from pilot.operator.component_status import (
    ACTION_REQUIRED,
    ERROR,
    RECONCILING,
    UPDATING,
    Components,
    ComponentStatus,
    build_status,
    build_status_patch,
    outcome_status,
    readiness_status,
    uniform_status,
)
from pilot.operator.deletion import add_finalizer, delete_installation, remove_finalizer
from pilot.operator.istio_operator_resource import FINALIZER, IstioOperatorResource
from pilot.operator.operator_context import OperatorContext

_log = scope("operator")
_STABLE_SECONDS = 10.0
"""Time in seconds without a correction after which the delay between corrections is reset."""
_RENDERING = ThreadPoolExecutor(1, "render")
"""The only thread that renders charts, because the renderer's cache is not thread-safe.

If a rendering is cancelled, it still runs to its end in this thread.
"""


class InstallationReconciler:
    """Reconciles one IstioOperator. `desired` contains the objects of its last valid spec."""

    def __init__(self, context: OperatorContext, resource: IstioOperatorResource) -> None:
        self._context, self._resource = context, resource
        self._wakeup = asyncio.Event()
        self._wakeup.set()
        self._task: asyncio.Task[float | None] | None = None
        self._attempts = RetryDelays(context.backoff, context.rng)
        self._corrections = RetryDelays(context.backoff, context.rng)
        self._installed: tuple[str, int] | None = None
        self._install_warnings: tuple[str, ...] = ()
        self._last_correction = float("-inf")
        self._plan: InstallPlan | None = None
        self._drifted: set[ResourceKey] = set()
        self._unready: dict[ResourceKey, str] = {}
        self._settings_warnings: list[str] = []
        self._settings_error = ""
        self._obsolete: set[ResourceKey] = set()
        self.desired: frozenset[ResourceKey] = frozenset()

    def update(self, resource: IstioOperatorResource) -> None:
        """Replace the IstioOperator. If it changed, cancel the reconciliation in progress."""
        before, self._resource = self._resource, resource
        if (before.spec_version, before.is_deleted, self._is_managed(before)) == (
            resource.spec_version,
            resource.is_deleted,
            self._is_managed(resource),
        ):
            return
        self._attempts.reset()
        self._wakeup.set()
        if self._task is not None:
            self._task.cancel()

    def mark_drifted(self, key: ResourceKey) -> None:
        """Schedule the correction of an object that another client changed or deleted."""
        self._drifted.add(key)
        self._wakeup.set()

    def update_readiness(self, key: ResourceKey, reason: str) -> None:
        """Record the reason why an unchanged object is not ready, or "" if it is ready."""
        if self._unready.get(key, "") != reason:
            self._record_readiness(key, reason)
            self._wakeup.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        timer: asyncio.TimerHandle | None = None
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if timer is not None:
                timer.cancel()
            self._task = asyncio.create_task(self._reconcile(), name=f"reconcile {self._resource.key}")
            try:
                await asyncio.wait((self._task,))
            except asyncio.CancelledError:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
                raise
            delay = None if self._task.cancelled() else self._delay_after(self._task)
            self._task = None
            timer = asyncio.get_running_loop().call_later(delay, self._wakeup.set) if delay is not None else None

    def _delay_after(self, task: asyncio.Task[float | None]) -> float | None:
        """Return the delay until the next reconciliation. If `task` failed with an unexpected error, log the error."""
        error = task.exception()
        if error is None:
            return task.result()
        _log.error("%s: failed to report a reconciliation error", self._resource.key, exc_info=error)
        return self._attempts.next_delay()

    def _is_managed(self, resource: IstioOperatorResource) -> bool:
        return resource.is_managed_by(self._context.revision)

    async def _reconcile(self) -> float | None:
        """Reconcile once. Returns the seconds until the next attempt, or None to wait for a change."""
        resource = self._resource
        is_installed = self._installed == resource.spec_version
        reason = "delete" if resource.is_deleted else "correct" if is_installed else "install"
        try:
            if resource.is_deleted:
                delay = await self._delete(resource)
            elif not self._is_managed(resource):
                delay = None
            elif not is_installed or (self._install_warnings and not self._drifted):
                delay = await self._install(resource)
            else:
                delay = await self._correct()
        except KubeError as error:
            _log.warning("%s: %s", resource.key, error)
            delay = await self._fail(str(error))
        except Exception as error:  # a bug, which is reported in the status and must not end the reconciler
            _log.exception("%s: reconciliation failed", resource.key)
            delay = await self._fail(f"internal error of the operator: {type(error).__name__}: {error}")
        self._context.metrics.reconciled.labels(reason, "done" if delay is None else "again").inc()
        return delay

    async def _fail(self, message: str) -> float:
        components = uniform_status(self._plan, ComponentStatus(ERROR, message)) if self._plan else {}
        await self._write_status(components, message, overall=ERROR)
        return self._attempts.next_delay()

    # -- installation --------------------------------------------------------------------------------------------------

    async def _install(self, resource: IstioOperatorResource) -> float | None:
        await add_finalizer(self._context.objects, resource)
        try:
            plan, self._settings_warnings = await asyncio.get_running_loop().run_in_executor(
                _RENDERING, _render, resource
            )
        except SettingsError as error:  # not retried; the previous installation stays under control
            self._installed, self._settings_error = resource.spec_version, str(error)
            await self._write_current_status()
            return None
        self._settings_error = ""
        self._obsolete |= self.desired
        self._plan, self.desired = plan, plan.keys()
        self._drifted.clear()
        if self._installed != resource.spec_version:
            await self._write_status(
                uniform_status(plan, ComponentStatus(_progress_status(resource))),
                overall="" if plan.steps else RECONCILING,
            )
        context = self._context
        installer = Installer(context.objects, context.wait, namespaces=context.namespaces)
        if conflicts := await installer.find_conflicts(plan):
            return await self._fail("; ".join(conflicts))
        outcome = await installer.install(plan, context.desired_by_others(resource.key))
        await self._write_status(
            outcome_status(plan, outcome), "; ".join((*outcome.warnings, *self._settings_warnings))
        )
        if outcome.failures:
            return self._attempts.next_delay()
        self._unready.clear()
        await self._delete_obsolete()
        self._installed, self._install_warnings = resource.spec_version, outcome.warnings
        return self._next_delay()

    def _next_delay(self) -> float | None:
        """Return the delay until the next reconciliation while all components are installed."""
        if not self._install_warnings:
            self._attempts.reset()
        return 0.0 if self._drifted else self._attempts.next_delay() if self._install_warnings else None

    async def _delete_obsolete(self) -> None:
        """Delete objects of earlier specs that pruning missed because their labels had been removed."""
        keep = self.desired | self._context.desired_by_others(self._resource.key)
        for key in [key for key in self._obsolete - keep if key.kind != DEFINITION]:
            await self._context.objects.delete(key)
        self._obsolete.clear()

    # -- corrections ---------------------------------------------------------------------------------------------------

    async def _correct(self) -> float | None:
        """Apply the objects that drifted. If corrections are frequent, delay them with backoff."""
        keys, self._drifted = self._drifted & self.desired, set()
        if not keys or self._plan is None:
            await self._write_current_status()
            return self._next_delay()
        try:
            await self._apply(self._plan, keys)
        except asyncio.CancelledError:
            self._drifted |= keys
            raise
        except KubeError as error:
            self._drifted |= keys
            await self._write_status(uniform_status(self._plan, ComponentStatus(ERROR, str(error))), str(error))
            return self._attempts.next_delay()
        await self._write_current_status()
        now = asyncio.get_running_loop().time()
        is_stable, self._last_correction = now - self._last_correction > _STABLE_SECONDS, now
        if is_stable:
            self._corrections.reset()
        await asyncio.sleep(self._corrections.next_delay())
        return self._next_delay()

    async def _apply(self, plan: InstallPlan, keys: set[ResourceKey]) -> None:
        installer = Installer(self._context.objects, self._context.wait)
        steps = tuple(
            step._replace(objects=tuple(plain for plain in step.objects if resource_key(plain) in keys))
            for step in plan.steps
        )
        for step in (await installer.with_webhook_state(plan._replace(steps=steps))).steps:
            for plain in step.objects:
                applied = await self._context.objects.apply(plain)
                self._context.metrics.corrected.inc()
                self._record_readiness(resource_key(applied), unready_reason(applied))

    def _record_readiness(self, key: ResourceKey, reason: str) -> None:
        if reason:
            self._unready[key] = reason
        else:
            self._unready.pop(key, None)

    async def _write_current_status(self) -> None:
        """Write the status of the last installation. If the settings have become invalid, write their error."""
        await self._write_status(
            self._components(),
            self._settings_error or "; ".join((*self._install_warnings, *self._settings_warnings)),
            overall=ERROR if self._settings_error else "",
        )

    def _components(self) -> Components:
        """Return the status of the components of the last installation."""
        if self._plan is None:
            return {}
        reasons: dict[str, list[str]] = {}
        for step in self._plan.steps:
            for plain in step.objects:
                if reason := self._unready.get(resource_key(plain)):
                    reasons.setdefault(step.component, []).append(f"{resource_key(plain)}: {reason}")
        return readiness_status(self._plan, {component: ", ".join(lines) for component, lines in reasons.items()})

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def _delete(self, resource: IstioOperatorResource) -> float | None:
        if FINALIZER not in resource.finalizers or (
            self._context.revision and self._context.revision != resource.revision
        ):
            return None
        if self._is_managed(resource) and (
            message := await delete_installation(self._context, resource, self._drifted & self.desired)
        ):
            await self._write_status({}, f"{message}; deletion continues once they are gone", overall=ACTION_REQUIRED)
            return self._attempts.next_delay()
        self.desired = frozenset()
        await remove_finalizer(self._context.objects, resource.key)
        return None

    # -- status --------------------------------------------------------------------------------------------------------

    async def _write_status(self, components: Components, message: str = "", overall: str = "") -> None:
        """Write the status. Retry until the write succeeds or the IstioOperator no longer exists."""
        status = build_status(components, message, overall)
        while True:
            before = self._resource.plain.get("status") or {}
            try:
                if before == status:
                    return
                after = await self._context.objects.patch(
                    self._resource.key, build_status_patch(before, status), "status"
                )
                self._resource.plain["status"] = after.get("status") or {}
                if self._resource.plain["status"] == status:
                    return
                delay = 0.0
            except NotFound:
                return
            except KubeError as error:
                _log.warning("%s: cannot write the status: %s", self._resource.key, error)
                delay = self._attempts.next_delay()
            await asyncio.sleep(delay)


def _progress_status(resource: IstioOperatorResource) -> str:
    """Return the status of components during an installation. It is UPDATING if another version is installed."""
    components = (resource.plain.get("status") or {}).get("componentStatus") or {}
    version = build_status({"": ComponentStatus("")})["componentStatus"][""]["version"]
    is_update = any(component.get("version") not in (None, version) for component in components.values())
    return UPDATING if is_update else RECONCILING


def _render(resource: IstioOperatorResource) -> tuple[InstallPlan, list[str]]:
    """Return the plan of an IstioOperator, and warnings about settings that have no effect. Raises SettingsError."""
    spec = resource.settings()["spec"]
    if not isinstance(spec, dict):
        raise SettingsError(f"spec: expected a mapping, got {spec}")
    warnings: list[str] = []
    return build_install_plan(render_installation(resource.settings(), warnings.append)), warnings
