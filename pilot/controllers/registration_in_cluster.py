"""Registers workloads outside Kubernetes as WorkloadEntries, writes their health, and removes expired entries.

Every replica handles the proxies that are connected to it. An entry contains the name of its proxy's replica.
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
from pilot.controllers.reconciler import Reconciler
from pilot.controllers.registered_entry import (
    CONNECTED,
    CONTROLLER,
    DISCONNECTED,
    build_entry,
    claimed_entry,
    find_entry,
    find_group,
)
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import Conflict, KubeError, NotFound
from pilot.lib.backoff import Backoff
from pilot.lib.logging.log import scope
from pilot.lib.metrics.kubernetes_metrics import KubernetesMetrics
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.model.ambient_features import listens_for_hbone
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.workload_registration import RegistrationError

MERGE_PATCH = "application/merge-patch+json"
_log = scope("wle")
PathOf = Callable[[GroupKind, str, str], str]
"""Returns the API path of an object with a kind, namespace and name, or "" if the kind is not available."""


class ClusterRegistrationOptions(NamedTuple):
    """Options of registration.

    replica: Name of this replica.
    grace: Seconds that an entry is kept after its proxy has disconnected.
    sweep: Interval in seconds at which to search for entries that other replicas did not remove.
    identity_check: Whether a proxy must authenticate as the entry's namespace and service account.
    """

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


class ClusterRegistration:
    """A `WorkloadRegistration` that writes WorkloadEntries to the API server. It writes only between `start` and
    `stop`."""

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        path_of: PathOf,
        options: ClusterRegistrationOptions,
        backoff: Backoff,
        rng: random.Random,
        metrics: KubernetesMetrics,
    ) -> None:
        self._client, self._db, self._path_of, self._options, self._metrics = client, db, path_of, options, metrics
        self._streams: collections.Counter[ObjectKey] = collections.Counter()
        self._health: dict[ObjectKey, _Health] = {}
        self._health_writer: Reconciler[ObjectKey] = Reconciler("health of", self._write_health, backoff, rng)
        self._disconnector: Reconciler[ObjectKey] = Reconciler("end of", self._mark_disconnected, backoff, rng)
        self._remover: Reconciler[ObjectKey] = Reconciler("removal of", self._remove, backoff, rng)
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: set[asyncio.TimerHandle] = set()

    async def start(self) -> None:
        """Start writing entries."""
        coroutines = (self._health_writer.run(), self._disconnector.run(), self._remover.run(), self._sweep())
        self._tasks = [asyncio.create_task(coroutine, name="workload entries") for coroutine in coroutines]

    async def stop(self) -> None:
        """Stop writing entries. Proxies that move to another replica are registered there."""
        for timer in self._timers:
            timer.cancel()
        await cancel_tasks(*self._tasks)

    # -- streams -------------------------------------------------------------------------------------------------------

    async def register(self, proxy: Proxy) -> None:
        """Register the proxy's workload if the proxy requests registration. Raise RegistrationError if that is not
        possible."""
        key = claimed_entry(proxy)
        if key is None:
            return
        self._streams[key] += 1
        try:
            if proxy.text("AUTO_REGISTER_GROUP"):
                await self._register(key, find_group(self._db, proxy, self._options.identity_check), proxy)
            else:
                await self._adopt(key, proxy)
        except BaseException as error:
            self._drop_stream(key)
            if isinstance(error, Exception):
                self._metrics.registered("errors")
            if isinstance(error, KubeError):
                raise RegistrationError(str(error)) from error
            raise

    def unregister(self, proxy: Proxy) -> None:
        """Record the end of a stream. The grace period of an entry starts after its last stream has ended."""
        key = claimed_entry(proxy)
        if key is not None and self._drop_stream(key) and proxy.text("AUTO_REGISTER_GROUP"):
            self._disconnector.enqueue((key,))

    def report_health(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Record the result of a proxy's health check."""
        key = claimed_entry(proxy)
        if key is not None and self._streams[key]:
            self._health[key] = _Health(healthy, message, _now())
            self._health_writer.enqueue((key,))

    def _drop_stream(self, key: ObjectKey) -> bool:
        """Decrement the number of an entry's streams. Return whether it was the last stream."""
        self._streams[key] -= 1
        if self._streams[key] > 0:
            return False
        del self._streams[key]
        return True

    # -- writes --------------------------------------------------------------------------------------------------------

    async def _register(self, key: ObjectKey, group: Object[WorkloadGroup], proxy: Proxy) -> None:
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        group_path = self._path_of(WORKLOAD_GROUP.id, group.namespace, group.name)
        if not path or not group_path:
            raise RegistrationError("the API server does not serve WorkloadEntries")
        uid = _read(await self._client.call("GET", group_path)).metadata.uid
        entry = build_entry(group, proxy, uid, _api_version(path), listens_for_hbone(self._db.settings.ambient))
        annotations = {CONTROLLER: self._options.replica, CONNECTED: _now()}
        entry["metadata"]["annotations"] |= annotations
        try:
            await self._client.call("POST", path.rpartition("/")[0], body=msgspec.json.encode(entry))
            self._metrics.registered("success")
        except Conflict:  # the proxy was registered before
            await self._annotate(path, {**annotations, DISCONNECTED: None})
            self._metrics.registered("updates")

    async def _adopt(self, key: ObjectKey, proxy: Proxy) -> None:
        """Manage the health in an entry that a user has created."""
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        if not path:
            raise RegistrationError("the API server does not serve WorkloadEntries")
        find_entry(self._db, proxy, key, self._options.identity_check)
        await self._annotate(path, {CONTROLLER: self._options.replica, CONNECTED: _now()})

    async def _mark_disconnected(self, key: ObjectKey) -> None:
        """Record in an entry that its proxy has disconnected. After the grace period, check whether to remove the
        entry."""
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        if not path or self._streams[key] or not await self._is_ours(path):
            return
        await self._annotate(path, {CONNECTED: None, DISCONNECTED: _now()})
        self._metrics.registered("unregister")
        self._health.pop(key, None)
        self._timers.add(asyncio.get_running_loop().call_later(self._options.grace, self._remover.enqueue, (key,)))

    async def _remove(self, key: ObjectKey) -> None:
        """Remove an entry after its grace period."""
        path = self._path_of(WORKLOAD_ENTRY.id, *key)
        if not path or self._streams[key]:
            return
        try:
            metadata = _read(await self._client.call("GET", path)).metadata
            if not self._has_expired(metadata.annotations or {}):
                return
            body = msgspec.json.encode({"preconditions": {"resourceVersion": metadata.resource_version}})
            await self._client.call("DELETE", path, body=body)
            self._metrics.registered("deletes")
            _log.info("unregistered WorkloadEntry %s/%s", *key)
        except (NotFound, Conflict):  # it was deleted, or its proxy reconnected
            return

    def _has_expired(self, annotations: Mapping[str, str]) -> bool:
        """Return whether the grace period of a registered entry is over."""
        disconnected = annotations.get(DISCONNECTED, "")
        return bool(
            disconnected
            and REGISTRATION_GROUP in annotations
            and _seconds_since(disconnected) >= self._options.grace - 0.001
        )

    async def _is_ours(self, path: str) -> bool:
        try:
            annotations = _read(await self._client.call("GET", path)).metadata.annotations or {}
        except NotFound:
            return False
        return annotations.get(CONTROLLER) == self._options.replica

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
            entry = _read(await self._client.call("GET", path))
            if (entry.metadata.annotations or {}).get(CONTROLLER) != self._options.replica:
                return
            patch = msgspec.json.encode({"status": {"conditions": _conditions(entry.status, health)}})
            await self._client.call("PATCH", f"{path}/status", body=patch, content_type=MERGE_PATCH)
        except NotFound:
            return

    async def _sweep(self) -> None:
        """Periodically remove expired entries that other replicas did not remove."""
        while True:
            await asyncio.sleep(self._options.sweep)
            rows = WORKLOAD_ENTRY.table(self._db).rows()
            self._remover.enqueue(key.object for key, row in rows if self._has_expired(row.annotations))


def _conditions(status: _Status | None, health: _Health) -> list[_Condition]:
    """Return the conditions of an entry, updated with the current health."""
    by_type = {condition.type: condition for condition in (status.conditions if status is not None else None) or ()}
    previous, word = by_type.pop("Healthy", None), str(health.healthy)
    changed_at = previous.last_transition_time if previous is not None and previous.status == word else None
    return [
        *by_type.values(),
        _Condition("Healthy", word, health.at, changed_at or health.at, message=health.message or None),
    ]


def _api_version(path: str) -> str:
    _, _, group, version, *_ = path.split("/")
    return f"{group}/{version}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _seconds_since(timestamp: str) -> float:
    try:
        return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(timestamp)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")
