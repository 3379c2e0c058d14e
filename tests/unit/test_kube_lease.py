"""One of several replicas leads, and another one takes over when it is gone."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pilot.kube.client import Client
from pilot.kube.lease import Election, Terms
from pilot.kube.tasks import end_tasks
from tests.support.apiserver.server import ApiServer
from tests.support.kube import client_of, until

TERMS = Terms(lease=1.0, give_up=0.3, attempt=0.01)
LEASE = ("coordination.k8s.io", "leases", "istio-system", "writers")


class Replica:
    """A process that wants to lead."""

    def __init__(self, server: ApiServer, name: str) -> None:
        self.client: Client = client_of(server)
        self.election = Election(self.client, "istio-system", "writers", name, TERMS)
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
        self.election._held = None
        await end_tasks(self.task)

    async def stop(self) -> None:
        await end_tasks(self.task)
        await self.client.close()


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


def holder(server: ApiServer) -> str:
    lease = server.get(*LEASE)
    return lease["spec"].get("holderIdentity", "") if lease is not None else ""


async def test_one_of_three_leads_and_another_when_it_is_killed(server: ApiServer) -> None:
    replicas = {name: Replica(server, name) for name in "abc"}
    await until(lambda: any(r.working for r in replicas.values()))
    first = holder(server)
    assert [name for name, r in replicas.items() if r.working] == [first]
    await replicas.pop(first).kill()
    await until(lambda: any(r.working for r in replicas.values()))
    second = holder(server)
    assert second != first
    assert [name for name, r in replicas.items() if r.working] == [second]
    lease = server.get(*LEASE)
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 1
    for replica in replicas.values():
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
    server.faults.refuse(409, times=3, concerns=lambda asked: asked.verb in ("create", "update"))
    first = Replica(server, "first")
    await until(lambda: first.working)
    assert server.faults.spent
    await first.stop()


async def test_work_that_fails_does_not_end_the_election(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    client = client_of(server)
    election = Election(client, "istio-system", "writers", "one", TERMS)
    task = asyncio.create_task(election.run(fail))
    await until(lambda: "has failed" in caplog.text)
    assert election.leads
    await end_tasks(task)
    await client.close()
