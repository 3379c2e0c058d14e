"""Decodes objects of API servers.

Large objects, and others on request, are checked by worker processes, and converted in a thread, so that they hold up
nothing else.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from pilot.config.kind import AnyKind, accept_any
from pilot.config.kinds.istio import ENVOY_FILTER, TELEMETRY
from pilot.config.problem import ObjectRef, Problem, error
from pilot.ingest.decode import Decoded, DocumentOrigin, Row, decode_object
from pilot.ingest.object_check import CheckJob, CheckResult
from pilot.kube.list_watch import NamespacedName
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import LANES, JobError, JobRunner

T = TypeVar("T")
PROGRAM = "pilot.ingest.object_check"
LARGE = 64 << 10
"""Size in bytes of a large object. The decoding of a smaller object takes at most 20 ms."""
_LARGE_OF_KIND = {ENVOY_FILTER.id: 5 << 10, TELEMETRY.id: 16 << 10}
"""Sizes in bytes of large objects of kinds that take longer to check: each value of an EnvoyFilter is compared with
Envoy's API, and each expression of a Telemetry is parsed."""
AT_ONCE = 100
"""Number of small objects to decode before other tasks run. This takes about 10 ms."""
LONGEST_WAIT = 600.0
"""Maximum number of seconds until an object is checked. Each watch waits for one object at a time."""
TOO_DEEP = error("too-deep", "", "the object is nested too deeply")
_decode_json = msgspec.json.Decoder().decode
_result_decoder = msgspec.msgpack.Decoder(CheckResult)


def large_size(kind: AnyKind) -> int:
    """Return the size in bytes from which an object of a kind is large."""
    return _LARGE_OF_KIND.get(kind.id, LARGE)


class DecodedObject(NamedTuple):
    """The result of decoding an object, and the CPU seconds that it took."""

    decoded: Decoded
    seconds: float


class ObjectDecoder:
    """Decodes objects. If `jobs` is None, large objects are checked in a thread."""

    def __init__(self, jobs: JobRunner | None = None) -> None:
        self._jobs = jobs

    async def decode(
        self,
        kind: AnyKind,
        origin: DocumentOrigin,
        name: NamespacedName,
        raw: bytes,
        largest: int | None = None,
        is_timed: bool = True,
    ) -> DecodedObject:
        """Decode an object of a given kind. A large one, or one of at least `largest` bytes, is checked in a worker
        process.

        Unless `is_timed`, the seconds for other objects are 0: reading the CPU time would take a tenth of the time.
        """
        started = time.thread_time() if is_timed else 0.0
        largest = large_size(kind) if largest is None else largest
        try:
            if len(raw) < largest:
                decoded = _decode(kind, origin, raw)
                return DecodedObject(decoded, time.thread_time() - started if is_timed else 0.0)
            if self._jobs is None or kind.validate is accept_any:
                return DecodedObject(await asyncio.to_thread(_decode, kind, origin, raw), 0.0)
            return await self._decode_apart(self._jobs, kind, origin, name, raw)
        except RecursionError:
            return DecodedObject(refuse(kind, origin, name, TOO_DEEP), 0.0)

    async def _decode_apart(
        self, jobs: JobRunner, kind: AnyKind, origin: DocumentOrigin, name: NamespacedName, raw: bytes
    ) -> DecodedObject:
        job = pickle.dumps(CheckJob(kind.table_name, origin), pickle.HIGHEST_PROTOCOL)
        try:
            result = _result_decoder.decode(await jobs.run(JobSource(origin.cluster, name.namespace), job, bytes(raw)))
        except JobError as fault:
            problem = error("too-expensive", "", f"the object cannot be checked: {fault}")
            return DecodedObject(refuse(kind, origin, name, problem), sum(limits.cpu for limits in LANES))
        if result.is_too_deep:
            return DecodedObject(refuse(kind, origin, name, TOO_DEEP), result.seconds)
        if not result.is_accepted:
            refused = (row_of(kind, origin, name),) if result.is_refused else ()
            return DecodedObject(Decoded(problems=result.problems, refused=refused), result.seconds)
        decoded = await asyncio.to_thread(_decode, kind, origin, raw, is_validated=True)
        return DecodedObject(decoded._replace(problems=result.problems), result.seconds)


def slices(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists that are decoded without interruption: of `AT_ONCE` items, or until their size is that
    of a large object."""
    slice_, size = list[T](), 0
    for item in items:
        slice_.append(item)
        size += size_of(item)
        if len(slice_) == AT_ONCE or size >= LARGE:
            yield slice_
            slice_, size = [], 0
    if slice_:
        yield slice_


def _decode(kind: AnyKind, origin: DocumentOrigin, raw: bytes, is_validated: bool = False) -> Decoded:
    return decode_object(kind, _decode_json(raw), origin, is_validated)


def refuse(kind: AnyKind, origin: DocumentOrigin, name: NamespacedName, problem: Problem) -> Decoded:
    """Return the result for an object that cannot be decoded."""
    about = msgspec.structs.replace(problem, object=ObjectRef(kind.id, *name))
    return Decoded(problems=(about,), refused=(row_of(kind, origin, name),))


def row_of(kind: AnyKind, origin: DocumentOrigin, name: NamespacedName) -> Row:
    return kind.table_name, kind.key(origin.cluster, *name)
