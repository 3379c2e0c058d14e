"""Decodes the objects of one kind in one cluster, and passes them to the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from pilot.config.kind import AnyKind
from pilot.config.problem import error
from pilot.ingest.decode import Decoded, DocumentOrigin
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.object_decoder import LARGE, TOO_DEEP, ObjectDecoder, refuse, row_of, slices
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.logging.log import scope

_log = scope("kube")


class EditSink(Protocol):
    """A receiver of edits, such as `Batch`."""

    def put(self, edits: Iterable[Edit]) -> None: ...


class KubeObjects:
    """Receives the changed objects of one kind."""

    def __init__(
        self,
        kind: AnyKind,
        origin: DocumentOrigin,
        ledger: SourceLedger,
        batch: EditSink,
        decoder: ObjectDecoder = ObjectDecoder(),
    ) -> None:
        self._kind, self._origin, self._ledger, self._batch = kind, origin, ledger, batch
        self._decoder = decoder

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        """Put changes into the batch. Large objects are decoded at the same time, so that their namespaces take
        turns."""
        async with asyncio.TaskGroup() as group:
            large = {
                id(change): group.create_task(self._decode(change))
                for change in changes
                if change.raw is not None and len(change.raw) >= LARGE
            }
            for slice_ in slices(changes, lambda change: len(change.raw or b"")):
                await asyncio.sleep(0)
                decoded = [await (large.get(id(change)) or self._decode(change)) for change in slice_]
                await self._put(zip([change.name for change in slice_], decoded, strict=True))

    async def _put(self, decoded: Iterable[tuple[NamespacedName, Decoded | None]]) -> None:
        async with self._ledger.turn:
            edits: list[Edit] = []
            for name, result in decoded:
                row = row_of(self._kind, self._origin, name)
                edits += self._ledger.put(row, result) if result is not None else self._ledger.drop(row)
            self._batch.put(edits)

    async def _decode(self, change: ObjectChange) -> Decoded | None:
        """Decode a changed object. Return None if the object was deleted."""
        if change.raw is None:
            return None
        if change.is_too_deep:
            return refuse(self._kind, self._origin, change.name, TOO_DEEP)
        try:
            return await self._decoder.decode(self._kind, self._origin, change.name, change.raw)
        except Exception as fault:  # an internal error or invalid data must not affect other objects
            _log.error("cannot decode %s %s/%s", self._kind.id, *change.name, exc_info=True)
            problem = error("internal-error", "", f"{type(fault).__name__}: {fault}")
            return refuse(self._kind, self._origin, change.name, problem)
