"""Large responses are encoded in slices, and the event loop runs between them."""

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

STATE = TypeState("plan", ())
BOTH_VARIANTS = pytest.mark.parametrize("session", [sotw(), delta()], ids=["sotw", "delta"])


def payload(*names: str) -> Payload:
    return Payload(resource("cds", name) for name in names)


@BOTH_VARIANTS
def test_small_response_is_one_slice(session: Session) -> None:
    assert (
        len(list(session.slices(Response(CLUSTER, STATE, (payload("x", "y"), payload("x", "y")), ("x",)), "v", "n")))
        == 1
    )


@BOTH_VARIANTS
def test_placeholders_per_slice(session: Session) -> None:
    names = [f"n{number:05}" for number in range(50_000)]
    placeholders = Placeholders(find_type(ENDPOINT), names)
    slices = list(session.slices(Response(ENDPOINT, STATE, (payload("x", "y"), placeholders)), "v", "n"))
    assert len(slices) == 100
    message: Any = (
        discovery_pb2.DeltaDiscoveryResponse if isinstance(session, DeltaSession) else discovery_pb2.DiscoveryResponse
    )
    response = message.FromString(b"".join(slices))
    assignments = [getattr(r, "resource", r) for r in response.resources][2:]
    assert [endpoint_pb2.ClusterLoadAssignment.FromString(r.value).cluster_name for r in assignments] == names
    assert len(placeholders) == 50_000
    assert abs(placeholders.size - sum(map(len, slices))) < placeholders.size / 2


def test_removed_names_per_slice() -> None:
    names = tuple(f"n{number:05}" for number in range(50_000))
    slices = list(delta().slices(Response(CLUSTER, STATE, (), names), "v", "n"))
    assert len(slices) == 10
    assert tuple(discovery_pb2.DeltaDiscoveryResponse.FromString(b"".join(slices)).removed_resources) == names


@BOTH_VARIANTS
def test_resources_per_slice(session: Session) -> None:
    resources = Payload([resource("cds", "a")] * 30_001)
    slices = list(session.slices(Response(CLUSTER, STATE, (resources,)), "v", "n"))
    assert (len(slices), resources.pieces() is resources.pieces()) == (13, True)
    message: Any = (
        discovery_pb2.DeltaDiscoveryResponse if isinstance(session, DeltaSession) else discovery_pb2.DiscoveryResponse
    )
    assert len(message.FromString(b"".join(slices)).resources) == 30_001


async def test_event_loop_runs_between_slices() -> None:
    turns: list[None] = []

    async def tick() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    ticker = asyncio.create_task(tick())
    assert await join(iter([b"a", b"b"] * 20)) == b"ab" * 20
    assert 35 < len(turns) <= 40
    ticker.cancel()
    assert await join(iter([b"a"])) == b"a"


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_names_requested_during_encoding_are_answered(variant: str) -> None:
    names = [f"n{number:05}" for number in range(5_000)]
    async with (
        serving() as server,
        Client(server, variant) as client,
        Client(server, variant, NODE.replace("pod", "pad")) as other,
    ):
        server.set("cds", a="1")
        await client.request("eds", *names)
        await client.request("eds", *([] if variant == "delta" else names), "z")
        await other.request("cds")
        await other.expect("cds", "a")
        received: set[str] = set()
        async with asyncio.timeout(10):
            while len(received) < 5_001:
                response = await client.receive()
                received |= {
                    endpoint_pb2.ClusterLoadAssignment.FromString(getattr(r, "resource", r).value).cluster_name
                    for r in response.resources
                }
        assert received == {*names, "z"}
