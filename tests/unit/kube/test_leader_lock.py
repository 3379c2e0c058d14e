"""One of several replicas leads, and another one takes over when it is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pilot.kube import leader_election as lease
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

TERMS = LeaseDurations(lease=1.0, renew_deadline=0.3, retry_period=0.01)
FORMS = pytest.mark.parametrize("form", [pytest.param(LEASE, id="Lease"), pytest.param(CONFIG_MAP, id="ConfigMap")])


class Replica:
    """A process that wants to lead."""

    def __init__(
        self,
        server: ApiServer,
        name: str,
        form: LockKind = LEASE,
        key: str = "",
        outranks: Callable[[str], bool] = never_outranks,
    ) -> None:
        self.client: ApiClient = client_of(server)
        self.election = LeaderElection(Lock(self.client, form, "istio-system", "writers"), name, TERMS, key, outranks)
        self.task = asyncio.create_task(self.election.run(self.lead))
        self.working = False

    async def lead(self) -> None:
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def kill(self) -> None:
        """Ends it without a word to the server."""
        await self.client.close()
        self.election._current = None
        await cancel_tasks(self.task)

    async def stop(self) -> None:
        await cancel_tasks(self.task)
        await self.client.close()


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


def record(server: ApiServer, form: LockKind) -> dict[str, Any]:
    """What stands in the lock, in the words of a ConfigMap's record."""
    found = server.get("coordination.k8s.io" if form is LEASE else "", form.plural, "istio-system", "writers")
    if found is None:
        return {}
    if form is LEASE:
        key = found["metadata"]["annotations"].get(HOLDER_KEY_ANNOTATION, "")
        return {**found["spec"], "leaderTransitions": found["spec"]["leaseTransitions"], "holderKey": key}
    read: dict[str, Any] = json.loads(found["metadata"]["annotations"][LEADER_ANNOTATION])
    return read


def holder(server: ApiServer, form: LockKind = LEASE) -> str:
    return str(record(server, form).get("holderIdentity", ""))


@FORMS
async def test_one_of_three_leads_and_another_when_it_is_killed(server: ApiServer, form: LockKind) -> None:
    replicas = {name: Replica(server, name, form) for name in "abc"}
    await until(lambda: any(r.working for r in replicas.values()))
    first = holder(server, form)
    assert [name for name, r in replicas.items() if r.working] == [first]
    await replicas.pop(first).kill()
    await until(lambda: any(r.working for r in replicas.values()))
    second = holder(server, form)
    assert second != first
    assert [name for name, r in replicas.items() if r.working] == [second]
    assert record(server, form)["leaderTransitions"] == 1
    for replica in replicas.values():
        await replica.stop()


@FORMS
async def test_who_has_more_right_takes_the_lead_at_once(server: ApiServer, form: LockKind) -> None:
    old = Replica(server, "old", form, "canary")
    await until(lambda: old.working)
    assert record(server, form)["holderKey"] == "canary"
    new = Replica(server, "new", form, "stable", lambda holder: holder == "canary")
    await until(lambda: new.working and not old.working)
    assert holder(server, form) == "new"
    for replica in (new, old):
        await replica.stop()


async def test_what_else_is_in_a_config_map_stays(server: ApiServer) -> None:
    metadata = {
        "name": "writers",
        "namespace": "istio-system",
        "labels": {"a": "b"},
        "annotations": {"c": "d", LEADER_ANNOTATION: "nonsense"},
    }
    server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"e": "f"}})
    replica = Replica(server, "one", CONFIG_MAP)
    await until(lambda: replica.working)
    found = server.get("", "configmaps", "istio-system", "writers")
    assert found is not None
    assert (found["metadata"]["labels"], found["metadata"]["annotations"]["c"], found["data"]) == (
        {"a": "b"},
        "d",
        {"e": "f"},
    )
    await replica.stop()


async def test_a_lock_that_istiod_holds_is_respected_until_it_ends(server: ApiServer) -> None:
    held = {
        "holderIdentity": "istiod-1",
        "holderKey": "default",
        "leaseDurationSeconds": 1,
        "acquireTime": "2025-01-01T00:00:00Z",
        "renewTime": "2025-01-01T00:00:00Z",
        "leaderTransitions": 3,
    }
    metadata = {"name": "writers", "namespace": "istio-system", "annotations": {LEADER_ANNOTATION: json.dumps(held)}}
    server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    replica = Replica(server, "one", CONFIG_MAP)
    await until(lambda: replica.working)
    assert (record(server, CONFIG_MAP)["leaderTransitions"], holder(server, CONFIG_MAP)) == (4, "one")
    assert len([asked for asked in server.requests if asked.verb == "get"]) > 2
    await replica.stop()


async def test_who_stops_gives_the_lease_back_at_once(server: ApiServer) -> None:
    first = Replica(server, "first")
    await until(lambda: first.working)
    second = Replica(server, "second")
    await first.stop()
    assert not first.working
    await until(lambda: second.working)
    await second.stop()
    assert holder(server) == ""


async def test_who_cannot_renew_stops_before_another_may_begin(server: ApiServer) -> None:
    first = Replica(server, "first")
    await until(lambda: first.working)
    await server.stop()
    await until(lambda: not first.working)
    await server.start()
    await until(lambda: first.working)
    await first.stop()


async def test_who_loses_a_race_waits(server: ApiServer) -> None:
    server.faults.refuse(409, times=3, matching=lambda asked: asked.verb in ("create", "update"))
    first = Replica(server, "first")
    await until(lambda: first.working)
    assert server.faults.spent
    await first.stop()


async def test_work_that_fails_does_not_end_the_election(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    client = client_of(server)
    election = LeaderElection(Lock(client, LEASE, "istio-system", "writers"), "one", TERMS)
    task = asyncio.create_task(election.run(fail))
    await until(lambda: "work failed" in caplog.text)
    assert election.is_leader
    await cancel_tasks(task)
    await client.close()


class Written:
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


def other(**more: Any) -> LeaderRecord:
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
    ("found", "seconds", "written"),
    [
        (None, 30.4, LeaderRecord("me", "key", 30, NOW, NOW, 0)),
        (None, 30.6, LeaderRecord("me", "key", 31, NOW, NOW, 0)),
        (None, 0.2, LeaderRecord("me", "key", 1, NOW, NOW, 0)),
        (LeaderRecord(leader_transitions=3), 30.0, LeaderRecord("me", "key", 30, NOW, NOW, 4)),
        (other(holder_identity="me"), 30.0, LeaderRecord("me", "key", 30, "a", NOW, 3)),
        (other(holder_key="lowest"), 30.0, LeaderRecord("me", "key", 30, NOW, NOW, 4)),
        (other(), 30.0, None),
    ],
)
async def test_what_a_candidate_writes_into_a_lock(
    found: LeaderRecord | None, seconds: float, written: LeaderRecord | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_micro_time", lambda: NOW)
    lock: Any = Written(found)
    election = LeaderElection(lock, "me", LeaseDurations(seconds), "key", lambda key: key == "lowest")
    assert await election._try_acquire() == (None if written is None else LockObject(written, {}))
    assert lock.record == (written or found)


@pytest.mark.parametrize(("says", "ends"), [(0, 20.0), (5, 5.0)])
async def test_a_lock_ends_when_it_has_not_changed_for_as_long_as_it_says(
    says: int, ends: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(lease, "asyncio", SimpleNamespace(get_running_loop=lambda: SimpleNamespace(time=lambda: now)))
    lock: Any = Written(other(lease_duration_seconds=says))
    election = LeaderElection(lock, "me", LeaseDurations(20.0))
    assert await election._try_acquire() is None
    now += ends
    assert await election._try_acquire() is None
    lock.record = other(lease_duration_seconds=says, renew_time="c")
    now += ends
    assert await election._try_acquire() is None
    now += ends + 0.001
    assert await election._try_acquire() is not None


async def test_a_lock_that_is_given_back_is_nobodys_and_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_micro_time", lambda: NOW)
    lock: Any = Written(other())
    election = LeaderElection(lock, "other")
    await election._release()
    assert lock.record == other()
    election._current = await lock.read()
    await election._release()
    assert lock.record == LeaderRecord("", "", 1, "a", NOW, 3)
