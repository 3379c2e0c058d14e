"""Properties of xDS resource types on a stream."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import BY_SHORT_NAME, ENDPOINT, HEALTH, TYPES, find_type, short_name
from pilot.xds.session.response_encoding import placeholder
from pilot.xds.session.session import Session
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.ads import Client, serving
from testing.clients.scripted_stream import delta, sotw

SYNCZ = "istio.io/debug/syncz"
BOTH_VARIANTS = pytest.mark.parametrize("make", [sotw, delta])


def request(make: Callable[[], Session], type_url: str, *names: str, nonce: str = "") -> Any:
    message: Any = (discovery_pb2.DiscoveryRequest if make is sotw else discovery_pb2.DeltaDiscoveryRequest)(
        type_url=type_url, response_nonce=nonce
    )
    (message.resource_names if make is sotw else message.resource_names_subscribe).extend(names)
    return message


def types_where(predicate: Callable[[Any], bool]) -> set[str]:
    return {entry.short_name for entry in TYPES if predicate(entry)}


def test_type_properties() -> None:
    assert types_where(lambda t: t.is_named) == {"eds", "rds", "sds", "ecds"}
    assert types_where(lambda t: not t.tells_removals) == {"eds", "ecds"}
    assert types_where(lambda t: t.needs_identity) == {"sds"}
    assert types_where(lambda t: not t.is_answered) == {HEALTH}
    assert BY_SHORT_NAME["wds"].endswith("istio.workload.Address")
    assert short_name("type.googleapis.com/istio.workload.Workload") == "wds"
    assert short_name("something/else") == "something/else"
    unknown, page = find_type("networking.istio.io/v1/Gateway"), find_type(SYNCZ)
    assert (unknown.short_name, unknown.is_named, unknown.needs_identity, unknown.has_nonces) == (
        unknown.url,
        False,
        False,
        True,
    )
    assert (page.needs_identity, page.has_nonces) == (True, False)


@BOTH_VARIANTS
def test_types_are_answered_in_warming_order(make: Callable[[], Session], seed: int) -> None:
    expected = ["cds", "eds", "lds", "rds", "sds", "wds", "wads"]
    requested = [*expected]
    random.Random(seed).shuffle(requested)
    session = make()
    for name in ["nds", *requested]:
        session.receive(request(make, BY_SHORT_NAME[name], "x"))
    assert [short_name(url) for url in session.subscriptions] == [*expected, "nds"]


def test_placeholder_is_an_empty_load_assignment() -> None:
    empty = endpoint_pb2.ClusterLoadAssignment(cluster_name="outbound|80||tea")
    assert placeholder(find_type(ENDPOINT), empty.cluster_name) == Resource.of(ENDPOINT, empty, name=empty.cluster_name)


@BOTH_VARIANTS
def test_responses_with_debug_pages_are_not_acknowledged(make: Callable[[], Session]) -> None:
    session, state = make(), TypeState("pages", (Snapshot([Resource("page", SYNCZ, b"")]),))
    session.receive(request(make, SYNCZ))
    response = session.next_response(lambda _: state)
    assert response is not None
    session.mark_sent(response, "nonce", 0.0)
    assert not session.receive(request(make, SYNCZ, nonce="nonce")).acknowledged
    assert (session.subscriptions[SYNCZ].nonce_sent, session.subscriptions[SYNCZ].in_flight) == ("", False)
    assert session.next_response(lambda _: state) is None


@pytest.mark.parametrize("variant", ["sotw", "delta"])
@pytest.mark.parametrize(
    "kind", ["sds", "ecds", "nds", "wds", "wads", "pcds", "type.googleapis.com/a.b.Unknown", HEALTH]
)
async def test_type_without_resources_does_not_block_others(variant: str, kind: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        await client.request(kind, "x")
        server.set("cds", a="2")
        await client.expect("cds", "a")


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_unhandled_debug_request_has_an_empty_response(
    variant: str,
) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        await client.request(SYNCZ, "x")
        server.set("cds", a="2")
        responses = [await client.receive() for _ in range(2)]  # in either order
        assert {short_name(response.type_url): len(response.resources) for response in responses} == {
            "cds": 1,
            short_name(SYNCZ): 0,
        }
