"""Progress of an event: its outcome is reported once all affected proxies have responded."""

from __future__ import annotations

import pytest

from pilot.xds.push.event_progress import EventOutcome, EventProgress
from testing.clients.ads import Client, Server, serving

BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])


def record_outcomes(server: Server) -> list[EventOutcome]:
    outcomes: list[EventOutcome] = []
    server.discovery.progress = EventProgress(outcomes.append, lambda: 0.0)
    return outcomes


def change(server: Server, event: int, **contents: str) -> int:
    return server.discovery.wake(server.db.commit([(server.db.mesh, "cds/all", contents)]), {"config": 1}, event)


@BOTH_VARIANTS
async def test_outcome_is_reported_after_the_acknowledgement(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        outcomes = record_outcomes(server)
        assert change(server, 7, a="2") == 1
        nonce = await client.expect("cds", "a")
        assert not outcomes
        await client.request("cds", nonce=nonce)
        await server.eventually(lambda: outcomes)
        assert outcomes == [EventOutcome(7, 1, 1, 0, 0, 0.0)]


@BOTH_VARIANTS
async def test_event_that_follows_before_the_last_is_processed_is_delivered_too(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        outcomes, (connection,) = record_outcomes(server), server.discovery.connections()
        assert [change(server, 7, a="2"), change(server, 8, a="3")] == [1, 1]
        assert connection.delivery(8) == "waiting"
        nonce = await client.expect("cds", "a")
        await client.request("cds", nonce=nonce)
        await server.eventually(lambda: len(outcomes) == 2)
        assert outcomes == [EventOutcome(7, 1, 1, 0, 0, 0.0), EventOutcome(8, 1, 1, 0, 0, 0.0)]


async def test_event_without_a_change_ends_at_once() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.request("cds", nonce=await client.expect("cds", "a"))
        outcomes = record_outcomes(server)
        server.discovery.wake(list(server.discovery.connections()[0].nodes()), {"config": 1}, 8)
        await server.eventually(lambda: outcomes)
        assert outcomes == [EventOutcome(8, 1, 0, 0, 0, 0.0, unchanged=1)]


async def test_disconnected_proxy_is_in_the_outcome() -> None:
    async with serving() as server:
        async with Client(server) as client:
            server.set("cds", a="1")
            await client.request("cds")
            await client.request("cds", nonce=await client.expect("cds", "a"))
            outcomes = record_outcomes(server)
            change(server, 9, a="2")
            await client.expect("cds", "a")
        await server.eventually(lambda: outcomes)
        assert outcomes == [EventOutcome(9, 1, 0, 0, 1, 0.0)]
