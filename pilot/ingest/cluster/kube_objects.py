"""Decodes the objects of one kind in one cluster, and passes them to the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from pilot.config.kind import AnyKind
from pilot.config.problem import error
from pilot.ingest.cluster.start_budget import StartBudget
from pilot.ingest.decode import Decoded, DocumentOrigin
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.object_decoder import TOO_DEEP, ObjectDecoder, large_size, refuse, row_of, slices
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.logging.log import scope
from pilot.lib.time_slice import time_slice

_log = scope("kube")


class EditSink(Protocol):
    """A receiver of edits, such as `Batch`."""

    def put(self, edits: Iterable[Edit]) -> None: ...


class KubeObjects:
    """Receives the changed objects of one kind.

    While `budget` limits the objects of a namespace, those that exceed it are not decoded. `waiting` contains their
    names until `receive_waiting` has decoded them, or a later change has replaced them. This is the `Postponement` of
    the informer, so that most of these objects are not even read.
    """

    def __init__(
        self,
        kind: AnyKind,
        origin: DocumentOrigin,
        ledger: SourceLedger,
        batch: EditSink,
        decoder: ObjectDecoder = ObjectDecoder(),
        budget: StartBudget | None = None,
    ) -> None:
        self.kind = kind
        self.waiting: dict[NamespacedName, None] = {}
        self._origin, self._ledger, self._batch = origin, ledger, batch
        self._decoder, self._large = decoder, large_size(kind)
        self._budget = None if kind.is_built_in else budget  # it does not limit built-in kinds

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        """Put changes into the batch. Large objects are decoded at the same time, so that their namespaces take
        turns, unless a budget applies, which can be charged only in order."""
        async with asyncio.TaskGroup() as group:
            large = {
                id(change): group.create_task(self._decode(change, self._large))
                for change in changes
                if change.raw is not None and len(change.raw) >= self._large and not self._is_limited(change)
            }
            for slice_ in slices(changes, lambda change: len(change.raw or b"")):
                await asyncio.sleep(0)
                is_over, decoded = time_slice(), list[tuple[NamespacedName, Decoded | None]]()
                for change in slice_:
                    self.waiting.pop(change.name, None)
                    if self._must_wait(change):
                        self.waiting[change.name] = None
                        continue
                    decoded.append((change.name, await (large.get(id(change)) or self._decode(change, self._large))))
                    if is_over():
                        await asyncio.sleep(0)
                        is_over = time_slice()
                await self._put(decoded)

    async def receive_waiting(self, objects: Sequence[ObjectChange]) -> None:
        """Put waiting objects into the batch. Worker processes check them."""

        async def decode(change: ObjectChange) -> None:
            result = await self._decode(change, 0)
            if change.name in self.waiting:
                del self.waiting[change.name]
                await self._put(((change.name, result),))

        async with asyncio.TaskGroup() as group:
            for change in objects:
                if change.name in self.waiting:
                    group.create_task(decode(change))

    def namespaces(self) -> Collection[str]:
        """Return the namespaces whose objects have to wait."""
        return self._budget.exceeded_by(self.kind) if self._budget is not None else ()

    def postpone(self, names: Iterable[NamespacedName]) -> None:
        """Let objects wait that have not been received."""
        self.waiting.update(dict.fromkeys(names))

    def _is_limited(self, change: ObjectChange) -> bool:
        return self._budget is not None and self._budget.applies(self.kind, change.name.namespace)

    def _must_wait(self, change: ObjectChange) -> bool:
        budget = self._budget
        return change.raw is not None and budget is not None and budget.is_exceeded(self.kind, change.name.namespace)

    async def _put(self, decoded: Iterable[tuple[NamespacedName, Decoded | None]]) -> None:
        async with self._ledger.turn:
            edits: list[Edit] = []
            for name, result in decoded:
                row = row_of(self.kind, self._origin, name)
                edits += self._ledger.put(row, result) if result is not None else self._ledger.drop(row)
            self._batch.put(edits)

    async def _decode(self, change: ObjectChange, largest: int) -> Decoded | None:
        """Decode a changed object. Return None if the object was deleted."""
        if change.raw is None:
            return None
        if change.is_too_deep:
            return refuse(self.kind, self._origin, change.name, TOO_DEEP)
        budget = self._budget if self._is_limited(change) else None
        try:
            decoded, seconds = await self._decoder.decode(
                self.kind, self._origin, change.name, change.raw, largest, is_timed=budget is not None
            )
        except Exception as fault:  # an internal error or invalid data must not affect other objects
            _log.error("cannot decode %s %s/%s", self.kind.id, *change.name, exc_info=True)
            problem = error("internal-error", "", f"{type(fault).__name__}: {fault}")
            return refuse(self.kind, self._origin, change.name, problem)
        if budget is not None:
            budget.charge(
                self.kind,
                change.name.namespace,
                seconds,
                len(change.raw),
                is_valid=not decoded.refused,
                problems=len(decoded.problems),
            )
        return decoded
