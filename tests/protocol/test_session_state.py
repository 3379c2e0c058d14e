"""What a session and the server remember beyond what they send: nonces, what is under way, views of others, who came back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.discovery import Discovery
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.session import Session
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.ads import NODE, plan
from testing.clients.scripted_stream import Stream, World, delta, resource, sotw

CDS = BY_SHORT_NAME["cds"]
BOTH = pytest.mark.parametrize("make", [sotw, delta])


def started(make: Callable[[], Session]) -> Stream:
    """A stream that has been sent its clusters twice and has said nothing of it."""
    stream = Stream(make(), World())
    for line in ("~ cds a", "> cds", "~ cds a=2"):
        stream.play(line)
        stream.answers()
    return stream


@BOTH
def test_a_stale_nonce_acknowledges_nothing(make: Callable[[], Session]) -> None:
    stream = started(make)
    stream.play("> cds @1")
    watch = stream.session.subscriptions[CDS]
    assert (watch.nonce_sent, watch.nonce_acked, watch.in_flight) == ("n2", "", True)
    assert (stream.received[-1].stale, stream.received[-1].acknowledged) == (True, False)
    stream.play("> cds @2")
    assert (watch.nonce_acked, watch.in_flight, stream.received[-1].acknowledged) == ("n2", False, True)


@BOTH
def test_a_nack_is_an_answer_but_no_acknowledgement(make: Callable[[], Session]) -> None:
    stream = started(make)
    stream.play("> cds @2 !3 no")
    watch = stream.session.subscriptions[CDS]
    assert (watch.nonce_acked, watch.last_error, watch.in_flight) == ("", "no", False)
    assert stream.received[-1].rejected == (3, "no")
    stream.play("> cds @2")
    assert (watch.nonce_acked, watch.last_error) == ("n2", "")


def test_sessions_at_different_views_each_get_their_own_difference() -> None:
    def view(*contents: str) -> TypeState:
        return TypeState("plan", (Snapshot(resource("cds", *content.split("=")) for content in contents),))

    first, second, third = view("a=1", "b=1", "c=1"), view("a=2", "b=1", "c=1"), view("a=2", "b=2")
    for _ in range(2):  # whoever asks first, and again
        for old, names, removed in ((second, {"b"}, {"c"}), (first, {"a", "b"}, {"c"})):
            changes = third.since(old)
            assert {r.name for change in changes for r in change.payload.resources} == names
            assert {name for change in changes for name in change.removed} == removed


def test_a_proxy_that_came_back_is_not_swept() -> None:
    db = Mesh()
    discovery = Discovery(db, Metrics(), plan, linger=0.0)
    proxy = Proxy(type=NodeType.SIDECAR, id="pod.ns", ips=("10.0.0.1",), dns_domain="ns.svc", namespace="ns")
    for _ in range(2):
        connection = discovery.connect(NODE, proxy, "10.0.0.1:99", DeltaSession(discovery.name_sets))
        assert discovery.sweep() == 0
        assert db.proxies.peek(NODE) == proxy
        discovery.remove(connection)
    assert discovery.sweep() == 1
    assert db.proxies.peek(NODE) is None
