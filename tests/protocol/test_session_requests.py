"""Effects of a request on the session and its connection."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.xds_types import CLUSTER, ENDPOINT
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.xds.push.connection import Connection
from pilot.xds.session.session import Acknowledgement
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.scripted_stream import delta, resource


def request(type_url: str, *names: str, **fields: Any) -> Any:
    return discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names, **fields)


def test_delta_request_without_nonce_is_neither_ack_nor_stale() -> None:
    session = delta()
    session.receive(request(CLUSTER, "*"))
    assert session.receive(request(CLUSTER, "x")) == Acknowledgement()


def test_name_subscribed_and_unsubscribed_at_once_is_not_subscribed() -> None:
    session = delta()
    session.receive(request(ENDPOINT, "a", "b", resource_names_unsubscribe=["b"]))
    assert session.subscriptions[ENDPOINT].requested.all == {"a"}


def test_initial_versions_only_affect_the_first_response() -> None:
    session, state = delta(), TypeState("plan", (Snapshot([resource("cds", "a")]),))
    session.receive(request(CLUSTER, "*", initial_resource_versions={"gone": ""}))
    response = session.next_response(lambda _: state)
    assert response is not None
    assert response.removed == ("gone",)
    session.mark_sent(response, "n", 0.0)
    session.owe_everything()
    second_response = session.next_response(lambda _: state)
    assert second_response is not None
    assert second_response.removed == ()


def test_endpoints_are_held_until_clusters_are_answered() -> None:
    session = delta()
    for type_url in (CLUSTER, ENDPOINT):
        session.receive(request(type_url, "a"))
    session.subscriptions[ENDPOINT].held_names = frozenset({"a"})
    for in_flight in (True, False):
        session.subscriptions[CLUSTER].in_flight = in_flight
        assert session.should_release is not in_flight


def test_push_reasons_accumulate() -> None:
    proxy = Proxy(type=NodeType.SIDECAR, id="a.ns", ips=("10.0.0.1",), dns_domain="ns.svc", namespace="ns", metadata={})
    connection = Connection(1, "key", proxy, "10.0.0.1:9", 0.0, delta(), {})
    connection.mark_dirty(1.0, {"config": 1})
    connection.mark_dirty(2.0, {"config": 1, "endpoint": 3})
    assert (connection.reasons, connection.begin()) == ({"config": 2, "endpoint": 3}, 1.0)


def test_response_is_continued_after_each_pause() -> None:
    names = [f"n{number}" for number in range(20)]
    states = [
        TypeState("plan", (Snapshot([resource("eds", name, f"{version}") for name in names]),)) for version in range(2)
    ]
    session, parts = delta(), 0

    class Pause(Exception): ...

    def pause() -> None:
        nonlocal parts
        parts += 1
        if parts <= 2:
            raise Pause

    session.receive(request(ENDPOINT, *names))
    first = session.next_response(lambda _: states[0])
    assert first is not None
    session.mark_sent(first, "n", 0.0)
    for _ in range(2):
        with pytest.raises(Pause):
            session.next_response(lambda _: states[1], pause)
    response = session.next_response(lambda _: states[1], pause)
    assert response is not None
    assert [*response.names()] == names
