"""Looks after one IstioOperator: what it says is installed, what others change is put back, and what it installed goes with it.

Each has a worker of its own, so that one that waits or fails keeps no other from being looked after.
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
from pilot.kube.errors import KubeError, NotFound
from pilot.kube.object_client import ResourceKey, resource_key
from pilot.lib.backoff import RetryDelays
from pilot.lib.log import scope
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
from pilot.operator.deletion import leave
from pilot.operator.finalizer import hold, release
from pilot.operator.istio_operator_resource import FINALIZER, IstioOperatorResource
from pilot.operator.operator_context import OperatorContext

_log = scope("operator")
_STEADY = 10.0
"""Seconds without a correction after which the next one is made at once."""
_RENDERING = ThreadPoolExecutor(1, "render")
"""The one thread that renders: what a rendering keeps for the next is not for two at a time, and an attempt that was given up goes on in it."""


class InstallationReconciler:
    """One IstioOperator. `wanted` are the objects that it consists of, as far as its settings could be read."""

    def __init__(self, parts: OperatorContext, custom: IstioOperatorResource) -> None:
        self._parts, self._custom = parts, custom
        self._news = asyncio.Event()
        self._news.set()
        self._turn: asyncio.Task[float | None] | None = None
        self._attempts, self._corrections = (
            RetryDelays(parts.backoff, parts.choose),
            RetryDelays(parts.backoff, parts.choose),
        )
        self._installed: tuple[str, int] | None = None
        self._unfinished: tuple[str, ...] = ()  # what could not be done although all components are there
        self._corrected_at = float("-inf")
        self._plan: InstallPlan | None = None
        self._drifted: set[ResourceKey] = set()
        self._late: dict[ResourceKey, str] = {}
        self._warnings: list[str] = []
        self._mistake = ""
        self._left: set[ResourceKey] = set()
        self.wanted: frozenset[ResourceKey] = frozenset()

    def saw(self, custom: IstioOperatorResource) -> None:
        """Takes the IstioOperator as it is now. What is being done for an older one ends."""
        before, self._custom = self._custom, custom
        if (before.specification, before.leaving, self._is_ours(before)) == (
            custom.specification,
            custom.leaving,
            self._is_ours(custom),
        ):
            return
        self._attempts.reset()
        self._news.set()
        if self._turn is not None:
            self._turn.cancel()

    def drifted(self, key: ResourceKey) -> None:
        """Notes that somebody has changed or deleted an object."""
        self._drifted.add(key)
        self._news.set()

    def lacks(self, key: ResourceKey, missing: str) -> None:
        """Notes what an object that nobody has changed lacks now, "" for nothing."""
        if self._late.get(key, "") != missing:
            self._note_late(key, missing)
            self._news.set()

    async def run(self) -> None:
        """Looks after it until it is cancelled."""
        later: asyncio.TimerHandle | None = None
        while True:
            await self._news.wait()
            self._news.clear()
            if later is not None:
                later.cancel()
            self._turn = asyncio.create_task(self._look(), name=f"reconcile {self._custom.key}")
            try:
                await asyncio.wait((self._turn,))
            except asyncio.CancelledError:
                self._turn.cancel()
                await asyncio.gather(self._turn, return_exceptions=True)
                raise
            wait = None if self._turn.cancelled() else self._after(self._turn)
            self._turn = None
            later = asyncio.get_running_loop().call_later(wait, self._news.set) if wait is not None else None

    def _after(self, turn: asyncio.Task[float | None]) -> float | None:
        """Returns the seconds after which to look again; also where not even what went wrong could be said."""
        error = turn.exception()
        if error is None:
            return turn.result()
        _log.error("%s cannot be looked after", self._custom.key, exc_info=error)
        return self._attempts.next_delay()

    def _is_ours(self, custom: IstioOperatorResource) -> bool:
        return custom.is_for(self._parts.revision)

    async def _look(self) -> float | None:
        """Does what is to be done now; returns the seconds after which to look again, None where only news can change anything."""
        custom = self._custom
        reason = "delete" if custom.leaving else "correct" if self._installed == custom.specification else "install"
        try:
            if custom.leaving:
                result = await self._leave(custom)
            elif not self._is_ours(custom):
                result = None
            elif self._installed != custom.specification or (self._unfinished and not self._drifted):
                result = await self._install(custom)
            else:
                result = await self._correct()
        except KubeError as error:
            _log.warning("%s: %s", custom.key, error)
            result = await self._fail(str(error))
        except Exception as error:  # a bug of ours: it must not end looking after this one, nor go unseen
            _log.exception("%s cannot be reconciled", custom.key)
            result = await self._fail(f"the operator has failed: {type(error).__name__}: {error}")
        self._parts.metrics.reconciled.labels(reason, "done" if result is None else "again").inc()
        return result

    async def _fail(self, text: str) -> float:
        components = uniform_status(self._plan, ComponentStatus(ERROR, text)) if self._plan else {}
        await self._tell(components, text, whole=ERROR)
        return self._attempts.next_delay()

    # -- installation --------------------------------------------------------------------------------------------------

    async def _install(self, custom: IstioOperatorResource) -> float | None:
        await hold(self._parts.objects, custom)
        try:
            plan, self._warnings = await asyncio.get_running_loop().run_in_executor(_RENDERING, _read, custom)
        except SettingsError as error:  # only its author can change that; what was installed before is looked after on
            self._installed, self._mistake = custom.specification, str(error)
            await self._tell_installed()
            return None
        self._mistake = ""
        self._left |= self.wanted
        self._plan, self.wanted = plan, plan.keys()
        self._drifted.clear()
        if self._installed != custom.specification:
            await self._tell(
                uniform_status(plan, ComponentStatus(self._now(custom))), whole="" if plan.steps else RECONCILING
            )
        parts = self._parts
        installer = Installer(parts.objects, parts.waits, namespaces=parts.namespaces)
        if found := await installer.find_conflicts(plan):
            return await self._fail("; ".join(found))
        outcome = await installer.install(plan, parts.kept(custom.key))
        await self._tell(outcome_status(plan, outcome), "; ".join((*outcome.warnings, *self._warnings)))
        if outcome.failures:
            return self._attempts.next_delay()
        self._late.clear()
        await self._take_left()
        self._installed, self._unfinished = custom.specification, outcome.warnings
        return self._rest()

    def _rest(self) -> float | None:
        """Returns the seconds after which to look again where all components are there."""
        if not self._unfinished:
            self._attempts.reset()
        return 0.0 if self._drifted else self._attempts.next_delay() if self._unfinished else None

    async def _take_left(self) -> None:
        """Deletes what was installed for the settings before and is not wanted any more, where its labels do not tell so: somebody may have
        taken them off."""
        keep = self.wanted | self._parts.kept(self._custom.key)
        for key in [key for key in self._left - keep if key.kind != DEFINITION]:
            await self._parts.objects.delete(key)
        self._left.clear()

    def _now(self, custom: IstioOperatorResource) -> str:
        """Returns how a component is that is being installed: an update where another version was there."""
        there = (custom.plain.get("status") or {}).get("componentStatus") or {}
        version = build_status({"": ComponentStatus("")})["componentStatus"][""]["version"]
        return UPDATING if any(one.get("version") not in (None, version) for one in there.values()) else RECONCILING

    # -- corrections ---------------------------------------------------------------------------------------------------

    async def _correct(self) -> float | None:
        """Applies what somebody has changed, as it was; where that goes on and on, with longer and longer pauses."""
        keys, self._drifted = self._drifted & self.wanted, set()
        if not keys or self._plan is None:
            await self._tell_installed()
            return self._rest()
        try:
            await self._apply(self._plan, keys)
        except asyncio.CancelledError:
            self._drifted |= keys
            raise
        except KubeError as error:
            self._drifted |= keys
            await self._tell(uniform_status(self._plan, ComponentStatus(ERROR, str(error))), str(error))
            return self._attempts.next_delay()
        await self._tell_installed()
        now = asyncio.get_running_loop().time()
        steady, self._corrected_at = now - self._corrected_at > _STEADY, now
        if steady:
            self._corrections.reset()
        await asyncio.sleep(self._corrections.next_delay())
        return self._rest()

    async def _apply(self, plan: InstallPlan, keys: set[ResourceKey]) -> None:
        installer = Installer(self._parts.objects, self._parts.waits)
        steps = tuple(
            step._replace(objects=tuple(p for p in step.objects if resource_key(p) in keys)) for step in plan.steps
        )
        for step in (await installer.with_webhook_state(plan._replace(steps=steps))).steps:
            for plain in step.objects:
                found = await self._parts.objects.apply(plain)
                self._parts.metrics.corrected.inc()
                self._note_late(resource_key(found), unready_reason(found))

    def _note_late(self, key: ResourceKey, missing: str) -> None:
        if missing:
            self._late[key] = missing
        else:
            self._late.pop(key, None)

    async def _tell_installed(self) -> None:
        """Writes how what was installed last is; where the settings are wrong since, that."""
        await self._tell(
            self._components(),
            self._mistake or "; ".join((*self._unfinished, *self._warnings)),
            whole=ERROR if self._mistake else "",
        )

    def _components(self) -> Components:
        """Returns how the components are that were installed last."""
        if self._plan is None:
            return {}
        found: dict[str, list[str]] = {}
        for step in self._plan.steps:
            for plain in step.objects:
                if missing := self._late.get(resource_key(plain)):
                    found.setdefault(step.component, []).append(f"{resource_key(plain)}: {missing}")
        return readiness_status(self._plan, {component: ", ".join(lines) for component, lines in found.items()})

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _leave(self, custom: IstioOperatorResource) -> float | None:
        if FINALIZER not in custom.finalizers or (self._parts.revision and self._parts.revision != custom.revision):
            return None
        if self._is_ours(custom) and (attached := await leave(self._parts, custom, self._drifted & self.wanted)):
            await self._tell({}, f"{attached}; it goes once they are gone", whole=ACTION_REQUIRED)
            return self._attempts.next_delay()
        self.wanted = frozenset()
        await release(self._parts.objects, custom.key)
        return None

    # -- status --------------------------------------------------------------------------------------------------------

    async def _tell(self, components: Components, message: str = "", whole: str = "") -> None:
        """Writes the status; however often that fails, it is not forgotten."""
        wanted = build_status(components, message, whole)
        while True:
            before = self._custom.plain.get("status") or {}
            try:
                if before == wanted:
                    return
                after = await self._parts.objects.patch(self._custom.key, build_status_patch(before, wanted), "status")
                self._custom.plain["status"] = after.get("status") or {}
                if self._custom.plain["status"] == wanted:
                    return
                wait = 0.0
            except NotFound:
                return
            except KubeError as error:
                _log.warning("%s: the status cannot be written: %s", self._custom.key, error)
                wait = self._attempts.next_delay()
            await asyncio.sleep(wait)


def _read(custom: IstioOperatorResource) -> tuple[InstallPlan, list[str]]:
    """Returns the plan of an IstioOperator, and what has no effect in it. SettingsError where it is wrong."""
    spec = custom.settings()["spec"]
    if not isinstance(spec, dict):
        raise SettingsError(f"spec: expected a mapping, got {spec}")
    warnings: list[str] = []
    return build_install_plan(render_installation(custom.settings(), warnings.append)), warnings
