"""State of sessions and of the server: nonces, responses in flight, snapshots and reconnecting proxies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.discovery import Discovery
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.session import Session
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.ads import NODE, plan
from testing.clients.scripted_stream import ScriptedResources, Stream, delta, resource, sotw

CDS = BY_SHORT_NAME["cds"]
BOTH_VARIANTS = pytest.mark.parametrize("make", [sotw, delta])


def make_stream(make: Callable[[], Session]) -> Stream:
    """Return a stream with two unacknowledged responses."""
    stream = Stream(make(), ScriptedResources())
    for line in ("~ cds a", "> cds", "~ cds a=2"):
        stream.play(line)
        stream.responses()
    return stream


@BOTH_VARIANTS
def test_stale_nonce_acknowledges_nothing(make: Callable[[], Session]) -> None:
    stream = make_stream(make)
    stream.play("> cds @1")
    subscription = stream.session.subscriptions[CDS]
    assert (subscription.nonce_sent, subscription.nonce_acked, subscription.in_flight) == ("n2", "", True)
    assert (stream.received[-1].stale, stream.received[-1].acknowledged) == (True, False)
    stream.play("> cds @2")
    assert (subscription.nonce_acked, subscription.in_flight, stream.received[-1].acknowledged) == ("n2", False, True)


@BOTH_VARIANTS
def test_nack_ends_the_flight_without_an_acknowledgement(make: Callable[[], Session]) -> None:
    stream = make_stream(make)
    stream.play("> cds @2 !3 no")
    subscription = stream.session.subscriptions[CDS]
    assert (subscription.nonce_acked, subscription.last_error, subscription.in_flight) == ("", "no", False)
    assert stream.received[-1].rejected == (3, "no")
    stream.play("> cds @2")
    assert (subscription.nonce_acked, subscription.last_error) == ("n2", "")


def test_changes_since_different_states() -> None:
    def state(*contents: str) -> TypeState:
        return TypeState("plan", (Snapshot(resource("cds", *content.split("=")) for content in contents),))

    first, second, third = state("a=1", "b=1", "c=1"), state("a=2", "b=1", "c=1"), state("a=2", "b=2")
    for _ in range(2):  # in either order
        for old, names, removed in ((second, {"b"}, {"c"}), (first, {"a", "b"}, {"c"})):
            changes = third.since(old)
            assert {r.name for change in changes for r in change.payload.resources} == names
            assert {name for change in changes for name in change.removed} == removed


def test_reconnected_proxy_is_not_swept() -> None:
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
