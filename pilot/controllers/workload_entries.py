"""Registers the workloads outside of Kubernetes whose proxies ask for it, keeps their health, and takes away those that are gone.

Every replica does this for the proxies that are connected to it; an entry names the replica that its proxy is connected to.
"""

from __future__ import annotations

import asyncio
import collections
import datetime
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import WORKLOAD_ENTRY, WORKLOAD_GROUP
from pilot.config.networking.workload_entry import REGISTRATION_GROUP
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object, ObjectKey
from pilot.controllers.claims import claimed_entry, find_entry, find_group
from pilot.controllers.reconciler import Upkeep
from pilot.controllers.registered_entry import CONNECTED, CONTROLLER, DISCONNECTED, build_entry
from pilot.kube.client import ApiClient
from pilot.kube.errors import Conflict, KubeError, NotFound
from pilot.lib.backoff import Backoff
from pilot.lib.kubernetes_metrics import KubernetesMetrics
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.lifecycle import RegistrationError

MERGE_PATCH = "application/merge-patch+json"
_log = scope("wle")
PathOf = Callable[[GroupKind, str, str], str]
"""Returns the path of an object at the API server by kind, namespace and name; "" while the kind is not read."""


class EntryTerms(NamedTuple):
    """`replica`: the name of this one. `grace`: seconds that the entry of a proxy that is gone stays. `sweep`: seconds between two looks at
    entries that nobody has taken away. `identity_check`: a proxy must have proved to be of the entry's namespace and service account."""

    replica: str
    grace: float = 10.0
    sweep: float = 100.0
    identity_check: bool = True


class _Health(NamedTuple):
    healthy: bool
    message: str
    at: str


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Condition(msgspec.Struct, rename="camel", omit_defaults=True):
    type: str
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


_read = msgspec.json.Decoder(_Object).decode


class WorkloadEntries:
    """A `Lifecycle`, between `start` and `stop`. `path_of` knows where objects are at the API server."""

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        path_of: PathOf,
        terms: EntryTerms,
        backoff: Backoff,
        choose: random.Random,
        counts: KubernetesMetrics,
    ) -> None:
        self._client, self._db, self._path_of, self._terms, self._counts = client, db, path_of, terms, counts
        self._streams: collections.Counter[ObjectKey] = collections.Counter()
        self._health: dict[ObjectKey, _Health] = {}
        self._healths: Upkeep[ObjectKey] = Upkeep("health of", self._write_health, backoff, choose)
        self._gone: Upkeep[ObjectKey] = Upkeep("end of", self._write_end, backoff, choose)
        self._left: Upkeep[ObjectKey] = Upkeep("removal of", self._remove, backoff, choose)
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: set[asyncio.TimerHandle] = set()

    async def start(self) -> None:
        """Begins to write."""
        running = (self._healths.run(), self._gone.run(), self._left.run(), self._keep_sweeping())
        self._tasks = [asyncio.create_task(work, name="workload entries") for work in running]

    async def stop(self) -> None:
        """Writes nothing any more: the entries of proxies that go to another replica are that one's."""
        for timer in self._timers:
            timer.cancel()
        await cancel_tasks(*self._tasks)

    # -- streams -------------------------------------------------------------------------------------------------------

    async def connected(self, proxy: Proxy) -> None:
        """Returns when the proxy's workload is registered, if it asks for that. RegistrationError where it cannot be."""
        key = claimed_entry(proxy)
        if key is None:
            return
        self._streams[key] += 1
        try:
            if proxy.text("AUTO_REGISTER_GROUP"):
                await self._register(key, find_group(self._db, proxy, self._terms.identity_check), proxy)
            else:
                await self._adopt(key, proxy)
        except BaseException as error:
            self._forget_stream(key)
            if isinstance(error, Exception):
                self._counts.registered("errors")
            if isinstance(error, KubeError):
                raise RegistrationError(str(error)) from error
            raise

    def closed(self, proxy: Proxy) -> None:
        """Notes the end of a stream; with the last one of an entry its time begins to end."""
        key = claimed_entry(proxy)
        if key is not None and self._forget_stream(key) and proxy.text("AUTO_REGISTER_GROUP"):
            self._gone.look_at((key,))

    def reported(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Notes how a workload is, by the health checks of its proxy."""
        key = claimed_entry(proxy)
        if key is not None and self._streams[key]:
            self._health[key] = _Health(healthy, message, _now())
            self._healths.look_at((key,))

    def _forget_stream(self, key: ObjectKey) -> bool:
        """Counts one stream less; returns whether it was the last one."""
        self._streams[key] -= 1
        if self._streams[key] > 0:
            return False
        del self._streams[key]
        return True

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _register(self, key: ObjectKey, group: Object[WorkloadGroup], proxy: Proxy) -> None:
        path, group_path = (
            self._path_of(WORKLOAD_ENTRY.id, *key),
            self._path_of(WORKLOAD_GROUP.id, group.namespace, group.name),
        )
        if not path or not group_path:
            raise RegistrationError("the API server has no WorkloadEntries")
        uid = _read(await self._client.call("GET", group_path)).metadata.uid
        entry = build_entry(group, proxy, uid, _api_version(path))
        here = {CONTROLLER: self._terms.replica, CONNECTED: _now()}
        entry["metadata"]["annotations"] |= here
        try:
            await self._client.call("POST", path.rpartition("/")[0], body=msgspec.json.encode(entry))
            self._counts.registered("success")
        except Conflict:  # it has been here before
            await self._annotate(path, {**here, DISCONNECTED: None})
            self._counts.registered("updates")

    async def _adopt(self, key: ObjectKey, proxy: Proxy) -> None:
        """Takes care of the health of an entry that a user has written."""
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        if not path:
            raise RegistrationError("the API server has no WorkloadEntries")
        find_entry(self._db, proxy, key, self._terms.identity_check)
        await self._annotate(path, {CONTROLLER: self._terms.replica, CONNECTED: _now()})

    async def _write_end(self, key: ObjectKey) -> None:
        """Notes in an entry that its proxy has gone, and looks after the grace whether it stays away."""
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        if not path or self._streams[key] or not await self._is_ours(path):
            return
        await self._annotate(path, {CONNECTED: None, DISCONNECTED: _now()})
        self._counts.registered("unregister")
        self._health.pop(key, None)
        self._timers.add(asyncio.get_running_loop().call_later(self._terms.grace, self._left.look_at, (key,)))

    async def _remove(self, key: ObjectKey) -> None:
        """Takes away an entry whose proxy has been gone for the grace."""
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        if not path or self._streams[key]:
            return
        try:
            found = _read(await self._client.call("GET", path)).metadata
            if not self._has_left(found.annotations or {}):
                return
            body = msgspec.json.encode({"preconditions": {"resourceVersion": found.resource_version}})
            await self._client.call("DELETE", path, body=body)
            self._counts.registered("deletes")
            _log.info("%s/%s is not registered any more", *key)
        except (NotFound, Conflict):  # it has gone, or come back
            return

    def _has_left(self, annotations: Mapping[str, str]) -> bool:
        """Returns whether what registered itself has been gone for the grace."""
        left = annotations.get(DISCONNECTED, "")
        return bool(left and REGISTRATION_GROUP in annotations and _seconds_since(left) >= self._terms.grace - 0.001)

    async def _is_ours(self, path: str) -> bool:
        try:
            annotations = _read(await self._client.call("GET", path)).metadata.annotations or {}
        except NotFound:
            return False
        return annotations.get(CONTROLLER) == self._terms.replica

    async def _annotate(self, path: str, annotations: Mapping[str, str | None]) -> None:
        patch = msgspec.json.encode({"metadata": {"annotations": annotations}})
        try:
            await self._client.call("PATCH", path, body=patch, content_type=MERGE_PATCH)
        except NotFound:
            return

    async def _write_health(self, key: ObjectKey) -> None:
        path, health = self._path_of(WORKLOAD_ENTRY.id, *key), self._health.get(key)
        if not path or health is None:
            return
        try:
            found = _read(await self._client.call("GET", path))
            if (found.metadata.annotations or {}).get(CONTROLLER) != self._terms.replica:
                return
            patch = msgspec.json.encode({"status": {"conditions": _conditions(found.status, health)}})
            await self._client.call("PATCH", f"{path}/status", body=patch, content_type=MERGE_PATCH)
        except NotFound:
            return

    async def _keep_sweeping(self) -> None:
        """Takes away, again and again, what replicas that are gone have left behind."""
        while True:
            await asyncio.sleep(self._terms.sweep)
            rows = WORKLOAD_ENTRY.table(self._db).rows()
            self._left.look_at(key.object for key, row in rows if self._has_left(row.annotations))


def _conditions(status: _Status | None, health: _Health) -> list[_Condition]:
    """Returns the conditions of an entry, with the one of its health as it is now."""
    old = {condition.type: condition for condition in (status.conditions if status is not None else None) or ()}
    before, word = old.pop("Healthy", None), str(health.healthy)
    changed = before.last_transition_time if before is not None and before.status == word else None
    return [*old.values(), _Condition("Healthy", word, health.at, changed or health.at, message=health.message or None)]


def _api_version(path: str) -> str:
    _, _, group, version, *_ = path.split("/")
    return f"{group}/{version}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _seconds_since(moment: str) -> float:
    try:
        return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")
