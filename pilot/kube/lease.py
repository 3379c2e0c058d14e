"""Who of several replicas leads: the one that a Lease names and that renews it.

A replica takes over a Lease that it has seen unchanged for as long as the Lease says. It counts by its own clock from the moment in which
it saw the last change, so clocks need not agree. Who leads stops before others can begin: it gives up when it could not renew in time.
"""
from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from pilot.kube.client import Client
from pilot.kube.errors import Conflict, KubeError, NotFound
from pilot.kube.tasks import end_tasks
from pilot.lib.log import scope

_log = scope("leader")


class Terms(NamedTuple):
    """Seconds: how long a Lease holds without being renewed, after how long its holder gives up, and between two attempts."""

    lease: float = 30.0
    give_up: float = 15.0
    attempt: float = 5.0


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Election:
    """One Lease, and one replica that wants it. `leads` says whether it has it."""

    def __init__(self, client: Client, namespace: str, name: str, identity: str, terms: Terms = Terms()) -> None:  # noqa: B008
        self.name, self.leads = name, False
        self._client, self._namespace, self._identity, self._terms = client, namespace, identity, terms
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._seen = ""
        self._seen_at = 0.0
        self._held: _Lease | None = None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits until it leads, runs `lead` as long as it does, and again, until it is cancelled; then the Lease is given back."""
        try:
            while True:
                await self._acquire()
                _log.info("%s: leading", self.name)
                self.leads = True
                leading = asyncio.create_task(self._lead(lead), name=f"lead {self.name}")
                try:
                    await self._keep()
                    _log.warning("%s: not leading any more", self.name)
                finally:
                    self.leads = False
                    await end_tasks(leading)
        finally:
            await self._give_back()

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        try:
            await lead()
        except Exception:
            _log.exception("%s: what the leader does has failed", self.name)

    async def _acquire(self) -> None:
        """Returns when the Lease is ours."""
        while True:
            try:
                self._held = await self._take()
            except KubeError as error:
                _log.warning("%s: %s", self.name, error)
            if self._held is not None:
                return
            await asyncio.sleep(self._terms.attempt)

    async def _keep(self) -> None:
        """Renews the Lease, until that could not be done for too long or somebody else has it."""
        renewed = asyncio.get_running_loop().time()
        while self._held is not None:
            await asyncio.sleep(self._terms.attempt)
            try:
                async with asyncio.timeout_at(renewed + self._terms.give_up):
                    self._held = await self._take()
                    renewed = asyncio.get_running_loop().time()
            except TimeoutError:
                return
            except KubeError as error:
                _log.warning("%s: %s", self.name, error)
                if asyncio.get_running_loop().time() > renewed + self._terms.give_up:
                    return

    async def _take(self) -> _Lease | None:
        """Returns the Lease with us as its holder; None while somebody else is. KubeError where it cannot be read or written."""
        try:
            found = _read(await self._client.call("GET", f"{self._collection}/{self.name}"))
        except NotFound:
            return await self._write(_Lease(_Metadata(self.name, self._namespace)), "POST", self._collection)
        holder = found.spec.holder_identity or ""
        if holder not in ("", self._identity) and not self._has_ended(found):
            return None
        return await self._write(found, "PUT", f"{self._collection}/{self.name}")

    def _has_ended(self, found: _Lease) -> bool:
        """Returns whether a Lease has not changed, as we have seen it, for as long as it holds."""
        now = asyncio.get_running_loop().time()
        if found.metadata.resource_version != self._seen:
            self._seen, self._seen_at = found.metadata.resource_version, now
        return now - self._seen_at > (found.spec.lease_duration_seconds or self._terms.lease)

    async def _write(self, lease: _Lease, method: str, path: str) -> _Lease | None:
        """Writes us into a Lease; returns it, None where somebody else was faster."""
        spec, now = lease.spec, _micro_time()
        if spec.holder_identity != self._identity:
            spec.acquire_time = now
            spec.lease_transitions = (spec.lease_transitions or 0) + (method == "PUT")
        spec.holder_identity, spec.renew_time = self._identity, now
        spec.lease_duration_seconds = max(1, round(self._terms.lease))
        try:
            return _read(await self._client.call(method, path, body=msgspec.json.encode(lease)))
        except Conflict:
            return None

    async def _give_back(self) -> None:
        """Names nobody in the Lease any more, so that another replica need not wait until it ends."""
        held, self._held = self._held, None
        if held is None:
            return
        held.spec.holder_identity, held.spec.lease_duration_seconds, held.spec.renew_time = "", 1, _micro_time()
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._terms.attempt):
                await self._client.call("PUT", f"{self._collection}/{self.name}", body=msgspec.json.encode(held))


def _read(answer: bytes) -> _Lease:
    return msgspec.json.decode(answer, type=_Lease)


def _micro_time() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
