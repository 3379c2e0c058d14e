"""The controller of IstioOperators: watches them and their installed objects, and runs a reconciler for each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence

from pilot.install.installation_labels import OWNER, OWNER_NAMESPACE
from pilot.install.installer import WaitOptions
from pilot.install.object_readiness import WORKLOADS, unready_reason
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.kube.object_client import Plain, ResourceKey, RetryPolicy
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.operator.drift import AppliedObjects, installed_object_informers
from pilot.operator.installation_reconciler import InstallationReconciler
from pilot.operator.istio_operator_resource import KIND, IstioOperatorResource, decode_istio_operator
from pilot.operator.operator_context import OperatorContext
from pilot.operator.operator_metrics import OperatorMetrics

MANAGER = "istio-operator"
_log = scope("operator")


class IstioOperatorController:
    """Reconciles the IstioOperators in some namespaces that belong to a revision.

    If the namespaces are None, IstioOperators in all namespaces are reconciled. If the revision is "", those of all
    revisions are. `ready` is set once all existing IstioOperators have been listed.
    """

    def __init__(
        self,
        client: ApiClient,
        namespaces: Sequence[str] | None,
        revision: str,
        wait: WaitOptions,
        watch: WatchOptions,
        rng: random.Random,
        metrics: OperatorMetrics,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        self.ready = False
        self._client, self._watch = client, watch
        self._objects = AppliedObjects(client, MANAGER, rng, retry, self._object_changed)
        self._context = OperatorContext(
            self._objects,
            namespaces,
            revision,
            wait,
            watch.backoff,
            rng,
            metrics,
            self._desired_by_others,
            self._transfer,
        )
        self._reconcilers: dict[NamespacedName, InstallationReconciler] = {}
        self._tasks: dict[NamespacedName, asyncio.Task[None]] = {}

    @property
    def objects(self) -> AppliedObjects:
        """Return the client for installed objects."""
        return self._objects

    async def run(self) -> None:
        """Run until cancelled."""
        tasks: list[asyncio.Task[None]] = []
        try:
            informers = [self._operator_informer(namespace) for namespace in self._watched_namespaces()]
            tasks += [asyncio.create_task(informer.run(), name="watch IstioOperators") for informer in informers]
            for informer in informers:
                await informer.synced.wait()
            self.ready = True
            informers = await self._object_informers()
            tasks += [asyncio.create_task(informer.run(), name="watch installed objects") for informer in informers]
            await asyncio.gather(*tasks)
        finally:
            self.ready = False
            await cancel_tasks(*tasks, *self._tasks.values())
            self._tasks.clear()
            self._reconcilers.clear()

    def _watched_namespaces(self) -> Sequence[str]:
        return [""] if self._context.namespaces is None else self._context.namespaces

    def _operator_informer(self, namespace: str) -> Informer:
        prefix = f"/namespaces/{namespace}" if namespace else ""
        return Informer(
            self._client,
            WatchedCollection(f"/apis/{KIND.api_version}{prefix}/istiooperators"),
            self._receive,
            self._watch,
            self._context.rng,
        )

    async def _object_informers(self) -> list[Informer]:
        delay = 0.0
        while True:
            try:
                return await installed_object_informers(
                    self._objects,
                    self._client,
                    self._context.namespaces,
                    self._object_changed,
                    self._watch,
                    self._context.rng,
                )
            except KubeError as error:
                _log.warning("cannot discover the kinds of the API server: %s", error)
                delay = min(max(2 * delay, self._watch.backoff.initial), self._watch.backoff.maximum)
                await asyncio.sleep(delay)

    # -- IstioOperators ------------------------------------------------------------------------------------------------

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for name, raw in changes:
            if raw is None:
                await self._remove(name)
            else:
                self._update(name, decode_istio_operator(raw))
        self._context.metrics.operators.set(len(self._reconcilers))

    def _update(self, name: NamespacedName, resource: IstioOperatorResource) -> None:
        reconciler = self._reconcilers.get(name)
        if reconciler is not None:
            reconciler.update(resource)
            return
        reconciler = self._reconcilers[name] = InstallationReconciler(self._context, resource)
        self._tasks[name] = asyncio.create_task(reconciler.run(), name=f"run the reconciler of {resource.key}")

    async def _remove(self, name: NamespacedName) -> None:
        self._reconcilers.pop(name, None)
        await cancel_tasks(self._tasks.pop(name, None))

    def _desired_by_others(self, operator: ResourceKey) -> frozenset[ResourceKey]:
        """Return the objects that other IstioOperators install."""
        return frozenset().union(
            *(
                reconciler.desired
                for name, reconciler in self._reconcilers.items()
                if (name.namespace, name.name) != (operator.namespace, operator.name)
            )
        )

    def _transfer(self, keys: Iterable[ResourceKey], operator: ResourceKey) -> None:
        """Make the other IstioOperators that install the same objects apply them, and thereby own them."""
        for key in keys:
            for name, reconciler in self._reconcilers.items():
                if key in reconciler.desired and (name.namespace, name.name) != (operator.namespace, operator.name):
                    reconciler.mark_drifted(key)

    # -- installed objects ---------------------------------------------------------------------------------------------

    def _object_changed(self, key: ResourceKey, plain: Plain | None) -> None:
        """Notify the reconcilers of the IstioOperators that install a changed object.

        Drift is reported to the reconciler of the owner. If the object was deleted or its owner is unknown, drift is
        reported to all of them. If only the status changed, all of them update the object's readiness.
        """
        if self._objects.defer(key, plain):
            return
        reconcilers = [reconciler for reconciler in self._reconcilers.values() if key in reconciler.desired]
        if plain is None:
            self._objects.fingerprints.pop(key, None)
        elif self._objects.is_unchanged(key, plain):
            if plain["kind"] in WORKLOADS:
                for reconciler in reconcilers:
                    reconciler.update_readiness(key, unready_reason(plain))
            return
        labels = (plain or {}).get("metadata", {}).get("labels") or {}
        owner = self._reconcilers.get(NamespacedName(labels.get(OWNER_NAMESPACE, ""), labels.get(OWNER, "")))
        for reconciler in [owner] if owner in reconcilers and owner is not None else reconcilers:
            reconciler.mark_drifted(key)
