"""All IstioOperators that are watched: a worker for each, and the objects that they installed followed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence

from pilot.install.installation_labels import OWNER, OWNER_NAMESPACE
from pilot.install.installer import WaitOptions
from pilot.install.object_readiness import WORKLOADS, unready_reason
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.object_client import Plain, ResourceKey, RetryPolicy
from pilot.kube.wire import NamespacedName, ObjectChange
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.operator.applied_objects import AppliedObjects
from pilot.operator.drift import followers
from pilot.operator.installation_reconciler import InstallationReconciler
from pilot.operator.istio_operator_resource import KIND, IstioOperatorResource, decode_istio_operator
from pilot.operator.metrics import OperatorMetrics
from pilot.operator.operator_context import OperatorContext

MANAGER = "istio-operator"
_log = scope("operator")


class IstioOperatorController:
    """Looks after the IstioOperators of namespaces, None for all, and of a revision, "" for all. `ready` is set once it has seen all of them."""

    def __init__(
        self,
        client: ApiClient,
        namespaces: Sequence[str] | None,
        revision: str,
        waits: WaitOptions,
        pace: WatchOptions,
        choose: random.Random,
        metrics: OperatorMetrics,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        self.ready = False
        self._client, self._pace = client, pace
        self._objects = AppliedObjects(client, MANAGER, choose, retry, self._changed)
        self._parts = OperatorContext(
            self._objects, namespaces, revision, waits, pace.backoff, choose, metrics, self._kept, self._hand_over
        )
        self._workers: dict[NamespacedName, InstallationReconciler] = {}
        self._tasks: dict[NamespacedName, asyncio.Task[None]] = {}

    @property
    def objects(self) -> AppliedObjects:
        """Returns the objects of the API server."""
        return self._objects

    async def run(self) -> None:
        """Looks after them until it is cancelled."""
        following: list[asyncio.Task[None]] = []
        try:
            customs = [self._custom_follower(namespace) for namespace in self._namespaces()]
            following += [asyncio.create_task(follower.run(), name="follow IstioOperators") for follower in customs]
            for follower in customs:
                await follower.synced.wait()
            self.ready = True
            objects = await self._object_followers()
            following += [asyncio.create_task(follower.run(), name="follow installed objects") for follower in objects]
            await asyncio.gather(*following)
        finally:
            self.ready = False
            await cancel_tasks(*following, *self._tasks.values())
            self._tasks.clear()
            self._workers.clear()

    def _namespaces(self) -> Sequence[str]:
        return [""] if self._parts.namespaces is None else self._parts.namespaces

    def _custom_follower(self, namespace: str) -> Informer:
        place = f"/namespaces/{namespace}" if namespace else ""
        return Informer(
            self._client,
            WatchedCollection(f"/apis/{KIND.api_version}{place}/istiooperators"),
            self._receive,
            self._pace,
            self._parts.choose,
        )

    async def _object_followers(self) -> list[Informer]:
        wait = 0.0
        while True:
            try:
                return await followers(
                    self._objects, self._client, self._parts.namespaces, self._changed, self._pace, self._parts.choose
                )
            except KubeError as error:
                _log.warning("what kinds there are cannot be asked: %s", error)
                wait = min(max(2 * wait, self._pace.backoff.initial), self._pace.backoff.maximum)
                await asyncio.sleep(wait)

    # -- IstioOperators ------------------------------------------------------------------------------------------------

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for name, raw in changes:
            if raw is None:
                await self._forget(name)
            else:
                self._see(name, decode_istio_operator(raw))
        self._parts.metrics.customs.set(len(self._workers))

    def _see(self, name: NamespacedName, custom: IstioOperatorResource) -> None:
        worker = self._workers.get(name)
        if worker is not None:
            worker.saw(custom)
            return
        worker = self._workers[name] = InstallationReconciler(self._parts, custom)
        self._tasks[name] = asyncio.create_task(worker.run(), name=f"look after {custom.key}")

    async def _forget(self, name: NamespacedName) -> None:
        self._workers.pop(name, None)
        await cancel_tasks(self._tasks.pop(name, None))

    def _kept(self, of: ResourceKey) -> frozenset[ResourceKey]:
        """Returns the objects that other IstioOperators want."""
        return frozenset().union(
            *(
                worker.wanted
                for name, worker in self._workers.items()
                if (name.namespace, name.name) != (of.namespace, of.name)
            )
        )

    def _hand_over(self, keys: Iterable[ResourceKey], of: ResourceKey) -> None:
        """Has other IstioOperators than one apply objects that they want too, which makes them the owners."""
        for key in keys:
            for name, worker in self._workers.items():
                if key in worker.wanted and (name.namespace, name.name) != (of.namespace, of.name):
                    worker.drifted(key)

    # -- objects -------------------------------------------------------------------------------------------------------

    def _changed(self, key: ResourceKey, plain: Plain | None) -> None:
        """Tells those whose object has changed: its owner, or where it is gone or says another owner, all that want it. Where its status alone
        has, all that want it are told what it lacks."""
        if self._objects.hold(key, plain):
            return
        wanting = [worker for worker in self._workers.values() if key in worker.wanted]
        if plain is None:
            self._objects.seen.pop(key, None)
        elif self._objects.is_known(key, plain):
            if plain["kind"] in WORKLOADS:
                for worker in wanting:
                    worker.lacks(key, unready_reason(plain))
            return
        labels = (plain or {}).get("metadata", {}).get("labels") or {}
        owner = self._workers.get(NamespacedName(labels.get(OWNER_NAMESPACE, ""), labels.get(OWNER, "")))
        for worker in [owner] if owner in wanting and owner is not None else wanting:
            worker.drifted(key)
