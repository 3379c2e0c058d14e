"""Reads and watches the configuration and workloads of a cluster through its API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind
from pilot.ingest.cluster.kind_watch import KindWatch
from pilot.ingest.cluster.kube_objects import EditSink, KubeObjects
from pilot.ingest.cluster.start_budget import StartBudget
from pilot.ingest.cluster.waiting_objects import WaitingObjects, WatchedObjects
from pilot.ingest.cluster.watched_kinds import DEFINITIONS, definition_of
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger, SourceLedger
from pilot.ingest.object_decoder import ObjectDecoder
from pilot.kube.api_client import ApiClient
from pilot.kube.informer import Informer, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("kube")


class KubeSource:
    """Watches one cluster.

    If the cluster is remote, only the kinds with `per_cluster` are read. A kind that has a CustomResourceDefinition is
    watched while the definition exists. `watches` contains the watched kinds. The callbacks in `on_watch` are called
    with each kind that is newly watched. If `namespace` is set, namespaced objects are read from this namespace only.
    `budget` limits the objects that are decoded before `synced` returns. `read_waiting` decodes the others.
    """

    def __init__(
        self,
        client: ApiClient,
        batch: EditSink,
        ledger: Ledger,
        rank: int,
        origin: DocumentOrigin,
        kinds: Iterable[AnyKind],
        pace: WatchOptions,
        rng: random.Random,
        namespace: str = "",
        decoder: ObjectDecoder = ObjectDecoder(),
        budget: StartBudget | None = None,
    ) -> None:
        self.cluster = origin.cluster
        self._client, self._batch, self._ledger, self._rank = client, batch, ledger, rank
        self._origin, self._pace, self._rng, self._namespace = origin, pace, rng, namespace
        self._decoder, self._budget = decoder, budget
        read = [kind for kind in kinds if origin.own or kind.per_cluster]
        self._built_in = [kind for kind in read if kind.is_built_in]
        self._defined = {definition_of(kind): kind for kind in read if not kind.is_built_in}
        self._definitions = Informer(client, DEFINITIONS, self._receive_definitions, pace, rng)
        self.watches: dict[GroupKind, KindWatch] = {}
        self.on_watch: list[Callable[[GroupKind], None]] = []
        self._objects: dict[GroupKind, WatchedObjects] = {}
        self._task: asyncio.Task[None] | None = None
        self._waiting: WaitingObjects | None = None
        self._waiting_task: asyncio.Task[None] | None = None

    async def start(self, configuration: bool = True) -> None:
        """Start watching. If `configuration` is false, only per-cluster kinds such as Service and Pod are read."""
        if not configuration:
            self._built_in = [kind for kind in self._built_in if kind.per_cluster]
            self._defined = {name: kind for name, kind in self._defined.items() if kind.per_cluster}
        for kind in self._built_in:
            self._watch(kind)
        self._begin()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._definitions.run(), name=f"watch the definitions of {self.cluster}")

    async def synced(self) -> None:
        """Wait until the objects that existed at startup, and are within the budget, are in the batch."""
        await self._definitions.synced.wait()
        while waiting := [watch for watch in self.watches.values() if not watch.settled.is_set()]:
            await waiting[0].settled.wait()
        if self._budget is not None:
            self._budget.close()
            self._waiting = WaitingObjects(self._objects, self._source_ledger(), self._batch)
            self._waiting.report()

    def read_waiting(self) -> None:
        """Read the objects beyond the budget in the background. Call this after `synced`."""
        if self._waiting is not None:
            self._waiting_task = asyncio.create_task(self._waiting.run(), name=f"waiting objects of {self.cluster}")

    async def stop(self) -> None:
        """Stop watching. The objects remain in the tables."""
        await cancel_tasks(self._task, self._waiting_task)
        for watch in self.watches.values():
            await watch.stop()

    def path_of(self, kind: GroupKind, namespace: str, name: str) -> str:
        """Return the API path of an object in the watched version, or "" if its kind is not watched."""
        watch = self.watches.get(kind)
        if watch is None:
            return ""
        base, _, plural = watch.informer.collection.path.rpartition("/")
        base = base.removesuffix(f"/namespaces/{self._namespace}")
        return f"{base}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{base}/{plural}/{name}"

    async def restart(self) -> None:
        """List all objects again, possibly at another server. Unchanged objects cause no edits."""
        await cancel_tasks(self._task)
        self._definitions.watch_collection(DEFINITIONS)
        for watch in self.watches.values():
            await watch.restart()
        self._begin()

    async def forget(self) -> None:
        """Remove all objects. Call this after `stop`."""
        for watch in self.watches.values():
            await watch.forget()

    def _watch(self, kind: AnyKind) -> None:
        objects = KubeObjects(kind, self._origin, self._source_ledger(), self._batch, self._decoder, self._budget)
        watch = KindWatch(self._client, kind, objects.receive, self._pace, self._rng, self._namespace)
        watch.informer.postponement = objects
        self.watches[kind.id], self._objects[kind.id] = watch, WatchedObjects(objects, watch.informer)
        watch.start()
        for callback in self.on_watch:
            callback(kind.id)

    def _source_ledger(self) -> SourceLedger:
        return self._ledger.source(self._rank, f"cluster {self.cluster}")

    async def _receive_definitions(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            kind = self._defined.get(change.name.name)
            if kind is None:
                continue
            watch = self.watches.get(kind.id)
            if change.raw is None and watch is not None:
                _log.info("%s: the CustomResourceDefinition of %s was deleted", self.cluster, kind.id)
                del self.watches[kind.id]
                await watch.stop()
                await watch.forget()
                del self._objects[kind.id]
            elif change.raw is not None and watch is not None:
                watch.recheck()
            elif change.raw is not None:
                self._watch(kind)
