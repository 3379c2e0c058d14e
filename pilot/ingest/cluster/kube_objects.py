"""Decodes the objects of one kind in one cluster, and passes them to the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from pilot.config.kind import AnyKind
from pilot.config.problem import ObjectRef, Problem, error
from pilot.ingest.decode import Decoded, DocumentOrigin, Row, decode_object
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.logging.log import scope

_log = scope("kube")
AT_ONCE = 100
"""Number of objects to decode before other tasks run. This takes about 10 ms."""
_decode_json = msgspec.json.Decoder().decode
_TOO_DEEP = error("too-deep", "", "the object is nested too deeply")


class EditSink(Protocol):
    """A receiver of edits, such as `Batch`."""

    def put(self, edits: Iterable[Edit]) -> None: ...


class KubeObjects:
    """Receives the changed objects of one kind."""

    def __init__(self, kind: AnyKind, origin: DocumentOrigin, ledger: SourceLedger, batch: EditSink) -> None:
        self._kind, self._origin, self._ledger, self._batch = kind, origin, ledger, batch

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        """Put changes into the batch."""
        for begin in range(0, len(changes), AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            decoded = [(self._row(change.name), self._decode(change)) for change in changes[begin : begin + AT_ONCE]]
            async with self._ledger.turn:
                edits: list[Edit] = []
                for row, result in decoded:
                    edits += self._ledger.put(row, result) if result is not None else self._ledger.drop(row)
                self._batch.put(edits)

    def _decode(self, change: ObjectChange) -> Decoded | None:
        """Decode a changed object. Return None if the object was deleted."""
        if change.raw is None:
            return None
        if change.is_too_deep:
            return self._refuse(change.name, _TOO_DEEP)
        try:
            return decode_object(self._kind, _decode_json(change.raw), self._origin)
        except RecursionError:
            return self._refuse(change.name, _TOO_DEEP)
        except Exception as fault:  # an internal error or invalid data must not affect other objects
            _log.error("cannot decode %s %s/%s", self._kind.id, *change.name, exc_info=True)
            return self._refuse(change.name, error("internal-error", "", f"{type(fault).__name__}: {fault}"))

    def _refuse(self, name: NamespacedName, problem: Problem) -> Decoded:
        """Return the result for an object that cannot be decoded."""
        about = msgspec.structs.replace(problem, object=ObjectRef(self._kind.id, *name))
        return Decoded(problems=(about,), refused=(self._row(name),))

    def _row(self, name: NamespacedName) -> Row:
        return self._kind.table_name, self._kind.key(self._origin.cluster, *name)
