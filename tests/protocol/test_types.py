"""What single types of xDS are like on a stream."""

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
BOTH = pytest.mark.parametrize("make", [sotw, delta])


def request(make: Callable[[], Session], type_url: str, *names: str, nonce: str = "") -> Any:
    made: Any = (discovery_pb2.DiscoveryRequest if make is sotw else discovery_pb2.DeltaDiscoveryRequest)(
        type_url=type_url, response_nonce=nonce
    )
    (made.resource_names if make is sotw else made.resource_names_subscribe).extend(names)
    return made


def shorts(wanted: Callable[[Any], bool]) -> set[str]:
    return {entry.short_name for entry in TYPES if wanted(entry)}


def test_what_is_declared_of_types() -> None:
    assert shorts(lambda t: t.is_named) == {"eds", "rds", "sds", "ecds"}
    assert shorts(lambda t: not t.tells_removals) == {"eds", "ecds"}
    assert shorts(lambda t: t.needs_identity) == {"sds"}
    assert shorts(lambda t: not t.is_answered) == {HEALTH}
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


@BOTH
def test_types_are_answered_in_the_order_in_which_envoy_warms_them(make: Callable[[], Session], seed: int) -> None:
    expected = ["cds", "eds", "lds", "rds", "sds", "wds", "wads"]
    asked = [*expected]
    random.Random(seed).shuffle(asked)
    session = make()
    for name in ["nds", *asked]:
        session.receive(request(make, BY_SHORT_NAME[name], "x"))
    assert [short_name(url) for url in session.subscriptions] == [*expected, "nds"]


def test_a_stand_in_is_a_cluster_load_assignment_without_endpoints() -> None:
    empty = endpoint_pb2.ClusterLoadAssignment(cluster_name="outbound|80||tea")
    assert placeholder(find_type(ENDPOINT), empty.cluster_name) == Resource.of(ENDPOINT, empty, name=empty.cluster_name)


@BOTH
def test_responses_with_debug_pages_are_not_acknowledged(make: Callable[[], Session]) -> None:
    session, view = make(), TypeState("pages", (Snapshot([Resource("page", SYNCZ, b"")]),))
    session.receive(request(make, SYNCZ))
    answer = session.next_response(lambda _: view)
    assert answer is not None
    session.mark_sent(answer, "nonce", 0.0)
    assert not session.receive(request(make, SYNCZ, nonce="nonce")).acknowledged
    assert (session.subscriptions[SYNCZ].nonce_sent, session.subscriptions[SYNCZ].in_flight) == ("", False)
    assert session.next_response(lambda _: view) is None


@pytest.mark.parametrize("variant", ["sotw", "delta"])
@pytest.mark.parametrize(
    "kind", ["sds", "ecds", "nds", "wds", "wads", "pcds", "type.googleapis.com/a.b.Unknown", HEALTH]
)
async def test_a_type_without_resources_is_not_answered_and_keeps_nothing_from_the_others(
    variant: str, kind: str
) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.ask("cds")
        await client.gets("cds", "a")
        await client.ask(kind, "x")
        server.set("cds", a="2")
        await client.gets("cds", "a")


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_a_question_to_which_nobody_knows_the_answer_has_an_empty_one_and_keeps_nothing_from_the_others(
    variant: str,
) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("cds", a="1")
        await client.ask("cds")
        await client.gets("cds", "a")
        await client.ask(SYNCZ, "x")
        server.set("cds", a="2")
        found = [await client.take() for _ in range(2)]  # which of them is first, is open
        assert {short_name(response.type_url): len(response.resources) for response in found} == {
            "cds": 1,
            short_name(SYNCZ): 0,
        }
