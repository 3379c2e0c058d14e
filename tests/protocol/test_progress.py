"""An event is followed to the proxies: its outcome is told once all that it concerns have answered."""

from __future__ import annotations

import pytest

from pilot.xds.push.event_progress import EventOutcome, EventProgress
from testing.clients.ads import Client, Server, serving

BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])


def followed(server: Server) -> list[EventOutcome]:
    told: list[EventOutcome] = []
    server.discovery.progress = EventProgress(told.append, lambda: 0.0)
    return told


def change(server: Server, event: int, **contents: str) -> int:
    return server.discovery.wake(server.db.commit([(server.db.mesh, "cds/all", contents)]), {"config": 1}, event)


@BOTH
async def test_the_outcome_is_told_when_the_proxy_has_acknowledged(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.ask("cds")
        await client.ask("cds", nonce=await client.gets("cds", "a"))
        told = followed(server)
        assert change(server, 7, a="2") == 1
        nonce = await client.gets("cds", "a")
        assert not told
        await client.ask("cds", nonce=nonce)
        await server.eventually(lambda: told)
        assert told == [EventOutcome(7, 1, 1, 0, 0, 0.0)]


async def test_an_event_that_comes_out_equal_is_over_at_once() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.ask("cds")
        await client.ask("cds", nonce=await client.gets("cds", "a"))
        told = followed(server)
        server.discovery.wake(list(server.discovery.connections()[0].nodes()), {"config": 1}, 8)
        await server.eventually(lambda: told)
        assert told == [EventOutcome(8, 1, 1, 0, 0, 0.0)]


async def test_a_proxy_that_goes_is_told_of_too() -> None:
    async with serving() as server:
        async with Client(server) as client:
            server.set("cds", a="1")
            await client.ask("cds")
            await client.ask("cds", nonce=await client.gets("cds", "a"))
            told = followed(server)
            change(server, 9, a="2")
            await client.gets("cds", "a")
        await server.eventually(lambda: told)
        assert told == [EventOutcome(9, 1, 0, 0, 1, 0.0)]
