"""However much a response holds, it is put together in slices between which others get their turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.xds_types import CLUSTER, ENDPOINT, find_type
from pilot.xds.push.pusher import join
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.response_encoding import Payload, Placeholders
from pilot.xds.session.session import Response, Session
from pilot.xds.session.snapshot import TypeState
from testing.clients.ads import NODE, Client, serving
from testing.clients.scripted_stream import delta, resource, sotw

VIEW = TypeState("plan", ())
BOTH = pytest.mark.parametrize("session", [sotw(), delta()], ids=["sotw", "delta"])


def batch(*names: str) -> Payload:
    return Payload(resource("cds", name) for name in names)


@BOTH
def test_a_small_response_is_one_slice(session: Session) -> None:
    assert len(list(session.slices(Response(CLUSTER, VIEW, (batch("x", "y"), batch("x", "y")), ("x",)), "v", "n"))) == 1


@BOTH
def test_stand_ins_are_made_five_hundred_at_a_time(session: Session) -> None:
    names = [f"n{number:05}" for number in range(50_000)]
    stand_ins = Placeholders(find_type(ENDPOINT), names)
    slices = list(session.slices(Response(ENDPOINT, VIEW, (batch("x", "y"), stand_ins)), "v", "n"))
    assert len(slices) == 100
    message: Any = (
        discovery_pb2.DeltaDiscoveryResponse if isinstance(session, DeltaSession) else discovery_pb2.DiscoveryResponse
    )
    response = message.FromString(b"".join(slices))
    found = [getattr(r, "resource", r) for r in response.resources][2:]
    assert [endpoint_pb2.ClusterLoadAssignment.FromString(r.value).cluster_name for r in found] == names
    assert len(stand_ins) == 50_000
    assert abs(stand_ins.size - sum(map(len, slices))) < stand_ins.size / 2


def test_removed_names_are_listed_five_thousand_at_a_time() -> None:
    names = tuple(f"n{number:05}" for number in range(50_000))
    slices = list(delta().slices(Response(CLUSTER, VIEW, (), names), "v", "n"))
    assert len(slices) == 10
    assert tuple(discovery_pb2.DeltaDiscoveryResponse.FromString(b"".join(slices)).removed_resources) == names


@BOTH
def test_resources_are_joined_ten_thousand_at_a_time(session: Session) -> None:
    many = Payload([resource("cds", "a")] * 30_001)
    slices = list(session.slices(Response(CLUSTER, VIEW, (many,)), "v", "n"))
    assert (len(slices), many.pieces() is many.pieces()) == (4, True)
    message: Any = (
        discovery_pb2.DeltaDiscoveryResponse if isinstance(session, DeltaSession) else discovery_pb2.DiscoveryResponse
    )
    assert len(message.FromString(b"".join(slices)).resources) == 30_001


async def test_the_event_loop_turns_between_two_slices() -> None:
    turns: list[None] = []

    async def tick() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    assert await join(iter([b"a", b"b"] * 20)) == b"ab" * 20
    assert 35 < len(turns) <= 40
    ticking.cancel()
    assert await join(iter([b"a"])) == b"a"


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_names_that_come_while_an_answer_is_put_together_are_answered_too(variant: str) -> None:
    names = [f"n{number:05}" for number in range(5_000)]
    async with (
        serving() as server,
        Client(server, variant) as client,
        Client(server, variant, NODE.replace("pod", "pad")) as other,
    ):
        server.set("cds", a="1")
        await client.ask("eds", *names)
        await client.ask("eds", *([] if variant == "delta" else names), "z")
        await other.ask("cds")
        await other.gets("cds", "a")
        found: set[str] = set()
        async with asyncio.timeout(10):
            while len(found) < 5_001:
                response = await client.take()
                found |= {
                    endpoint_pb2.ClusterLoadAssignment.FromString(getattr(r, "resource", r).value).cluster_name
                    for r in response.resources
                }
        assert found == {*names, "z"}
