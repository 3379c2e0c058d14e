"""Writes the condition `Reconciled` of Istio objects: whether the proxies have the last change of the object.

The condition has the form that istiod wrote. It is written once per generation of an object if the proxies respond
quickly, and otherwise once per interval while their number changes. Proxies that connect later do not change it.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from pilot.config.group_kind import GroupKind, is_istio
from pilot.config.problem import ObjectRef
from pilot.controllers.reconciler import Reconciler
from pilot.controllers.status_merge import Plain, StatusContext, replace_condition
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError, NotFound
from pilot.kube.deep_json import decode_any_depth
from pilot.kube.pages import read_pages
from pilot.lib.backoff import Backoff
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

CONDITION = "Reconciled"
INTERVAL = 2.0
"""Seconds between two checks."""
MOST = 20
"""Maximum number of objects that a check covers. The others wait for the next ones."""
RECOUNT = 15
"""Number of checks after which other replicas are counted again, if conditions are Unknown because of them."""
MERGE_PATCH = "application/merge-patch+json"
_log = scope("status")


class DeliveryCount(NamedTuple):
    """The delivery of a generation of an object: the numbers of connected proxies that it affects, of those that have
    it, and of those that have rejected it."""

    generation: int
    affected: int
    updated: int
    refused: int


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str = ""


class _Status(msgspec.Struct):
    conditions: list[Plain] | None = None
    phase: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status = msgspec.field(default_factory=_Status)


_decode_object = msgspec.json.Decoder(_Object).decode
Count = Callable[[ObjectRef], Awaitable[DeliveryCount | None]]


class DeliveryStatusController:
    """Writes conditions while it runs.

    `count` returns the delivery of an object to the proxies of this replica, or None if it is not known, and
    `count_others` the number of other replicas. `path_of` returns the API path of an object, or "" if its kind is not
    available. `kinds` returns the available kinds.
    """

    def __init__(
        self,
        client: ApiClient,
        count: Count,
        count_others: Callable[[], Awaitable[int]],
        path_of: Callable[[ObjectRef], str],
        kinds: Callable[[], Iterable[GroupKind]],
        backoff: Backoff,
        rng: random.Random,
        interval: float = INTERVAL,
    ) -> None:
        self._client, self._count, self._count_others = client, count, count_others
        self._path_of, self._kinds, self._interval = path_of, kinds, interval
        self._reconciler: Reconciler[ObjectRef] = Reconciler("condition of", self._write, backoff, rng)
        self._is_leading = False
        self._pending: dict[ObjectRef, None] = {}
        self._conditions: dict[ObjectRef, tuple[int, Plain]] = {}
        self._unknown: dict[ObjectRef, None] = {}

    def on_edit(self, refs: Iterable[ObjectRef]) -> None:
        """Record objects that have changed."""
        if self._is_leading:
            self._pending |= {ref: None for ref in refs if is_istio(ref.kind.group)}

    async def run(self) -> None:
        """Write conditions until cancelled. Start with the objects whose condition is not that of the last change."""
        writing = asyncio.create_task(self._reconciler.run(), name="write conditions about deliveries")
        self._is_leading = True
        try:
            await self._add_existing()
            for number in itertools.count(1):
                if self._pending or (self._unknown and not number % RECOUNT):
                    await self._check()
                await asyncio.sleep(self._interval)
        finally:
            self._is_leading = False
            self._pending, self._conditions, self._unknown = {}, {}, {}
            await cancel_tasks(writing)

    async def _check(self) -> None:
        """Count the deliveries of some objects, and enqueue those whose condition changes."""
        try:
            others = await self._count_others()
        except (KubeError, msgspec.MsgspecError) as error:
            _log.warning("cannot list the replicas of the control plane: %s", error)
            return
        if not others:  # those that there were have ended, and their proxies are connected here
            self._pending |= self._unknown
            self._unknown = {}
        for ref in list(itertools.islice(self._pending, MOST)):
            del self._pending[ref]
            count = await self._count(ref)
            if count is None:
                self._conditions.pop(ref, None)
                continue
            if count.updated < count.affected:
                self._pending[ref] = None
            elif others:
                self._unknown[ref] = None
            condition = count.generation, plain_condition(count, others)
            if self._conditions.get(ref) != condition:
                self._conditions[ref] = condition
                self._reconciler.enqueue((ref,))

    async def _add_existing(self) -> None:
        """Add the objects whose condition is missing, is about another generation, or is not True."""
        for kind in self._kinds():
            collection = self._path_of(ObjectRef(kind, "", "x")).removesuffix("/x")
            if not is_istio(kind.group) or not collection:
                continue
            try:
                async for item in _items(self._client, collection):
                    if not _is_complete(item):
                        self._pending[ObjectRef(kind, item.metadata.namespace, item.metadata.name)] = None
            except (KubeError, msgspec.MsgspecError) as error:
                _log.warning("cannot list the conditions of %s: %s", kind, error)

    async def _write(self, ref: ObjectRef) -> None:
        """Write the condition of one object if it differs."""
        path, desired = self._path_of(ref), self._conditions.get(ref)
        if not path or desired is None:
            return
        generation, condition = desired
        try:
            existing = await decode_any_depth(_decode_object, await self._client.call("GET", path))
            if existing.metadata.generation != generation:  # the commit of that generation adds the object again
                return
            before = existing.status.conditions or []
            after = replace_condition(before, condition, StatusContext(generation, _now(), ()))
            if after != before:
                change = {
                    "metadata": {"resourceVersion": existing.metadata.resource_version},
                    "status": {"conditions": after},
                }
                await self._client.call(
                    "PATCH", f"{path}/status", body=msgspec.json.encode(change), content_type=MERGE_PATCH
                )
        except NotFound:  # deleted meanwhile
            pass
        if ref not in self._pending:
            self._conditions.pop(ref, None)


async def _items(client: ApiClient, collection: str, **query: str) -> Any:
    async def fetch(page: dict[str, str], largest: int) -> bytes:
        return await client.call("GET", collection, query | page, largest=largest)

    async for page in read_pages(fetch):
        for raw in page.items or ():
            yield await decode_any_depth(_decode_object, raw)


def _is_complete(item: _Object) -> bool:
    """Return whether the condition of an object says that the proxies have its last change."""
    conditions: Iterator[Plain] = (c for c in item.status.conditions or () if c.get("type") == CONDITION)
    expected = "True", str(item.metadata.generation)
    return any((c.get("status"), str(c.get("observedGeneration"))) == expected for c in conditions)


async def count_other_replicas(client: ApiClient, namespace: str, revision: str, pod: str) -> int:
    """Return the number of running Pods of a revision of the control plane, except this one."""
    selector = f"app=istiod,istio.io/rev={revision}"
    path, count = f"/api/v1/namespaces/{namespace}/pods", 0
    async for item in _items(client, path, labelSelector=selector):
        is_other = item.metadata.name != pod and not item.metadata.deletion_timestamp
        count += is_other and item.status.phase == "Running"
    return count


def plain_condition(count: DeliveryCount, others: int) -> Plain:
    """Return the condition of an object. It is Unknown if other replicas may have proxies without the change."""
    message = f"{count.updated}/{count.affected} proxies up to date"
    status, reason = "True", "Delivered"
    if count.refused:
        status, reason, message = "False", "Refused", f"{message}, {count.refused} rejected it"
    elif count.updated < count.affected:
        status, reason = "False", "InProgress"
    elif others:
        status, reason = "Unknown", "OtherReplicas"
        message += f" at one replica; {others} more {'has' if others == 1 else 'have'} proxies that are not counted"
    return {"type": CONDITION, "status": status, "reason": reason, "message": message}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
