"""Leader election of several replicas with a lock at an API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pilot.kube import leader_election as election_module
from pilot.kube.api_client import ApiClient
from pilot.kube.leader_election import LeaderElection, LeaseDurations, never_outranks
from pilot.kube.leader_lock import (
    CONFIG_MAP,
    HOLDER_KEY_ANNOTATION,
    LEADER_ANNOTATION,
    LEASE,
    LeaderRecord,
    Lock,
    LockKind,
    LockObject,
)
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, until

DURATIONS = LeaseDurations(lease=1.0, renew_deadline=0.3, retry_period=0.01)
LOCK_KINDS = pytest.mark.parametrize(
    "form", [pytest.param(LEASE, id="Lease"), pytest.param(CONFIG_MAP, id="ConfigMap")]
)


class Replica:
    """A candidate for leadership."""

    def __init__(
        self,
        server: ApiServer,
        name: str,
        form: LockKind = LEASE,
        key: str = "",
        outranks: Callable[[str], bool] = never_outranks,
    ) -> None:
        self.client: ApiClient = client_of(server)
        self.election = LeaderElection(
            Lock(self.client, form, "istio-system", "writers"), name, DURATIONS, key, outranks
        )
        self.task = asyncio.create_task(self.election.run(self.lead))
        self.working = False

    async def lead(self) -> None:
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def kill(self) -> None:
        """Stop without releasing the lock."""
        await self.client.close()
        self.election._current = None
        await cancel_tasks(self.task)

    async def stop(self) -> None:
        await cancel_tasks(self.task)
        await self.client.close()


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


def record(server: ApiServer, form: LockKind) -> dict[str, Any]:
    """Return the content of the lock in the format of a ConfigMap's record."""
    plain = server.get("coordination.k8s.io" if form is LEASE else "", form.plural, "istio-system", "writers")
    if plain is None:
        return {}
    if form is LEASE:
        key = plain["metadata"]["annotations"].get(HOLDER_KEY_ANNOTATION, "")
        return {**plain["spec"], "leaderTransitions": plain["spec"]["leaseTransitions"], "holderKey": key}
    content: dict[str, Any] = json.loads(plain["metadata"]["annotations"][LEADER_ANNOTATION])
    return content


def holder(server: ApiServer, form: LockKind = LEASE) -> str:
    return str(record(server, form).get("holderIdentity", ""))


@LOCK_KINDS
async def test_another_replica_takes_over_when_the_leader_is_killed(server: ApiServer, form: LockKind) -> None:
    replicas = {name: Replica(server, name, form) for name in "abc"}
    await until(lambda: any(r.working for r in replicas.values()))
    leader = holder(server, form)
    assert [name for name, r in replicas.items() if r.working] == [leader]
    await replicas.pop(leader).kill()
    await until(lambda: any(r.working for r in replicas.values()))
    successor = holder(server, form)
    assert successor != leader
    assert [name for name, r in replicas.items() if r.working] == [successor]
    assert record(server, form)["leaderTransitions"] == 1
    for replica in replicas.values():
        await replica.stop()


@LOCK_KINDS
async def test_outranking_replica_takes_over_immediately(server: ApiServer, form: LockKind) -> None:
    old = Replica(server, "old", form, "canary")
    await until(lambda: old.working)
    assert record(server, form)["holderKey"] == "canary"
    new = Replica(server, "new", form, "stable", lambda holder: holder == "canary")
    await until(lambda: new.working and not old.working)
    assert holder(server, form) == "new"
    for replica in (new, old):
        await replica.stop()


async def test_other_config_map_content_is_kept(server: ApiServer) -> None:
    metadata = {
        "name": "writers",
        "namespace": "istio-system",
        "labels": {"a": "b"},
        "annotations": {"c": "d", LEADER_ANNOTATION: "nonsense"},
    }
    server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"e": "f"}})
    replica = Replica(server, "one", CONFIG_MAP)
    await until(lambda: replica.working)
    plain = server.get("", "configmaps", "istio-system", "writers")
    assert plain is not None
    assert (plain["metadata"]["labels"], plain["metadata"]["annotations"]["c"], plain["data"]) == (
        {"a": "b"},
        "d",
        {"e": "f"},
    )
    await replica.stop()


async def test_lock_of_istiod_is_respected_until_it_expires(server: ApiServer) -> None:
    content = {
        "holderIdentity": "istiod-1",
        "holderKey": "default",
        "leaseDurationSeconds": 1,
        "acquireTime": "2025-01-01T00:00:00Z",
        "renewTime": "2025-01-01T00:00:00Z",
        "leaderTransitions": 3,
    }
    metadata = {"name": "writers", "namespace": "istio-system", "annotations": {LEADER_ANNOTATION: json.dumps(content)}}
    server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    replica = Replica(server, "one", CONFIG_MAP)
    await until(lambda: replica.working)
    assert (record(server, CONFIG_MAP)["leaderTransitions"], holder(server, CONFIG_MAP)) == (4, "one")
    assert len([request for request in server.requests if request.verb == "get"]) > 2
    await replica.stop()


async def test_stopped_leader_releases_the_lease(server: ApiServer) -> None:
    first = Replica(server, "first")
    await until(lambda: first.working)
    second = Replica(server, "second")
    await first.stop()
    assert not first.working
    await until(lambda: second.working)
    await second.stop()
    assert holder(server) == ""


async def test_leader_that_cannot_renew_steps_down(server: ApiServer) -> None:
    first = Replica(server, "first")
    await until(lambda: first.working)
    await server.stop()
    await until(lambda: not first.working)
    await server.start()
    await until(lambda: first.working)
    await first.stop()


async def test_replica_that_loses_a_race_retries(server: ApiServer) -> None:
    server.faults.refuse(409, times=3, matching=lambda request: request.verb in ("create", "update"))
    first = Replica(server, "first")
    await until(lambda: first.working)
    assert server.faults.spent
    await first.stop()


async def test_failed_work_does_not_end_the_election(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    client = client_of(server)
    election = LeaderElection(Lock(client, LEASE, "istio-system", "writers"), "one", DURATIONS)
    task = asyncio.create_task(election.run(fail))
    await until(lambda: "task failed" in caplog.text)
    assert election.is_leader
    await cancel_tasks(task)
    await client.close()


class MemoryLock:
    """A lock in memory."""

    name = "writers"

    def __init__(self, record: LeaderRecord | None) -> None:
        self.record = record

    async def read(self) -> LockObject | None:
        return None if self.record is None else LockObject(self.record, {})

    async def write(self, record: LeaderRecord, over: LockObject | None) -> LockObject | None:
        assert (over is None) is (self.record is None)
        self.record = record
        return LockObject(record, {})


NOW = "2026-01-02T03:04:05.000006Z"


def other_record(**more: Any) -> LeaderRecord:
    return LeaderRecord(
        **(
            {
                "holder_identity": "other",
                "holder_key": "low",
                "acquire_time": "a",
                "renew_time": "b",
                "leader_transitions": 3,
            }
            | more
        )
    )


@pytest.mark.parametrize(
    ("current", "seconds", "expected"),
    [
        (None, 30.4, LeaderRecord("me", "key", 30, NOW, NOW, 0)),
        (None, 30.6, LeaderRecord("me", "key", 31, NOW, NOW, 0)),
        (None, 0.2, LeaderRecord("me", "key", 1, NOW, NOW, 0)),
        (LeaderRecord(leader_transitions=3), 30.0, LeaderRecord("me", "key", 30, NOW, NOW, 4)),
        (other_record(holder_identity="me"), 30.0, LeaderRecord("me", "key", 30, "a", NOW, 3)),
        (other_record(holder_key="lowest"), 30.0, LeaderRecord("me", "key", 30, NOW, NOW, 4)),
        (other_record(), 30.0, None),
    ],
)
async def test_record_written_by_a_candidate(
    current: LeaderRecord | None, seconds: float, expected: LeaderRecord | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election_module, "_micro_time", lambda: NOW)
    lock: Any = MemoryLock(current)
    election = LeaderElection(lock, "me", LeaseDurations(seconds), "key", lambda key: key == "lowest")
    assert await election._try_acquire() == (None if expected is None else LockObject(expected, {}))
    assert lock.record == (expected or current)


@pytest.mark.parametrize(("seconds", "expiry"), [(0, 20.0), (5, 5.0)])
async def test_lock_expires_when_unchanged_for_its_duration(
    seconds: int, expiry: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(
        election_module, "asyncio", SimpleNamespace(get_running_loop=lambda: SimpleNamespace(time=lambda: now))
    )
    lock: Any = MemoryLock(other_record(lease_duration_seconds=seconds))
    election = LeaderElection(lock, "me", LeaseDurations(20.0))
    assert await election._try_acquire() is None
    now += expiry
    assert await election._try_acquire() is None
    lock.record = other_record(lease_duration_seconds=seconds, renew_time="c")
    now += expiry
    assert await election._try_acquire() is None
    now += expiry + 0.001
    assert await election._try_acquire() is not None


async def test_released_lock_has_no_holder_and_expires_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_module, "_micro_time", lambda: NOW)
    lock: Any = MemoryLock(other_record())
    election = LeaderElection(lock, "other")
    await election._release()
    assert lock.record == other_record()
    election._current = await lock.read()
    await election._release()
    assert lock.record == LeaderRecord("", "", 1, "a", NOW, 3)
