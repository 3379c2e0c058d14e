"""Encoded responses, checked with two independent decoders, and the cache of encoded messages."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from envoy_data_plane.envoy.service.discovery import v3 as independent_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import CLUSTER, ENDPOINT, find_type
from pilot.xds.push.message_cache import EncodedMessage, MessageCache, random_uuid
from pilot.xds.session.response_encoding import Payload
from pilot.xds.session.session import Response, Session
from pilot.xds.session.snapshot import TypeState
from pilot.xds.session.subscription import Subscription
from testing.clients.scripted_stream import delta, resource, sotw

STATE = TypeState("plan", ())
NAMES = ["a", "b" * 127, "c" * 128, "ü" * 100, "d" * 20_000]
BOTH_VARIANTS = pytest.mark.parametrize("session", [sotw(), delta()], ids=["sotw", "delta"])


def make_payload(names: list[str]) -> Payload:
    return Payload(resource("cds", name, name) for name in names)


def test_sotw_response() -> None:
    response = Response(CLUSTER, STATE, (make_payload(NAMES[:2]), make_payload(NAMES[2:])))
    data = sotw().encode(response, "version", "nonce")
    first, other = discovery_pb2.DiscoveryResponse.FromString(data), independent_pb2.DiscoveryResponse.parse(data)
    assert (first.version_info, first.type_url, first.nonce) == ("version", CLUSTER, "nonce")
    assert (other.version_info, other.type_url, other.nonce) == ("version", CLUSTER, "nonce")
    assert [any_.SerializeToString() for any_ in first.resources] == [resource("cds", name, name).any for name in NAMES]
    assert [any_.value for any_ in other.resources] == [any_.value for any_ in first.resources]
    assert [any_.type_url for any_ in other.resources] == [CLUSTER] * len(NAMES)


def test_delta_response() -> None:
    message = Response(CLUSTER, STATE, (make_payload(NAMES[:2]), make_payload(NAMES[2:])), removed=("x" * 200, "y"))
    data = delta().encode(message, "version", "nonce")
    first, other = (
        discovery_pb2.DeltaDiscoveryResponse.FromString(data),
        independent_pb2.DeltaDiscoveryResponse.parse(data),
    )
    for decoded in (first, other):
        assert (decoded.system_version_info, decoded.type_url, decoded.nonce) == ("version", CLUSTER, "nonce")
        assert list(decoded.removed_resources) == ["x" * 200, "y"]
        assert [r.name for r in decoded.resources] == NAMES
        assert [r.version for r in decoded.resources] == [""] * len(NAMES)
    assert [r.resource.SerializeToString() for r in first.resources] == [
        resource("cds", name, name).any for name in NAMES
    ]
    assert [r.resource.value for r in other.resources] == [r.resource.value for r in first.resources]


@BOTH_VARIANTS
def test_empty_response(session: Session) -> None:
    data = session.encode(Response(CLUSTER, STATE, ()), "v", "n")
    assert data == discovery_pb2.DiscoveryResponse(version_info="v", type_url=CLUSTER, nonce="n").SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_000, 16_384, 3_000_000])
def test_resource_size(size: int) -> None:
    resource = Resource("name", CLUSTER, b"x" * size)
    expected = discovery_pb2.DeltaDiscoveryResponse()
    expected.resources.add(name="name").resource.MergeFromString(resource.any)
    assert discovery_pb2.DeltaDiscoveryResponse.FromString(resource.head + resource.encoded) == expected
    assert expected.resources[0].resource.value == b"x" * size


class TestMessageCache:
    def response(self, session: Session, payload: Payload, nonce: str = "") -> Response:
        session.subscriptions[CLUSTER] = Subscription(find_type(CLUSTER), session._name_sets.of(frozenset()), True)
        session.subscriptions[CLUSTER].nonce_sent = nonce
        return Response(CLUSTER, STATE, (payload,))

    def store(
        self, cache: MessageCache, session: Session, response: Response, version: str, nonce: str
    ) -> EncodedMessage:
        message = EncodedMessage(nonce, session.encode(response, version, nonce))
        cache.add(session, response, version, message)
        return message

    def test_equal_response_shares_its_message(self) -> None:
        cache, contents, session, other = MessageCache(), make_payload(NAMES), delta(), delta()
        response = self.response(session, contents)
        assert cache.find(session, response, "v1") is None
        message = self.store(cache, session, response, "v1", "n")
        assert cache.find(other, self.response(other, contents), "v1") is message

    def test_different_response_has_another_message(self) -> None:
        cache, contents, session, state_of_the_world = MessageCache(), make_payload(NAMES), delta(), sotw()
        response = self.response(session, contents)
        self.store(cache, session, response, "v1", "n")
        assert cache.find(session, response, "v2") is None
        assert cache.find(session, self.response(session, make_payload(NAMES)), "v1") is None
        assert cache.find(session, response._replace(removed=("x",)), "v1") is None
        assert cache.find(session, response._replace(type_url=ENDPOINT), "v1") is None
        assert cache.find(state_of_the_world, self.response(state_of_the_world, contents), "v1") is None

    def test_stream_never_gets_a_nonce_twice(self) -> None:
        cache, contents, session = MessageCache(), make_payload(NAMES), delta()
        response = self.response(session, contents, nonce="n")
        self.store(cache, session, response, "v1", "n")
        assert cache.find(session, response, "v1") is None

    def test_new_message_replaces_the_previous_one(self) -> None:
        cache, session = MessageCache(limit=25_000), delta()
        one, other = (self.response(session, make_payload([letter * 3_500])) for letter in "ab")
        stored = [
            self.store(cache, session, response, "v1", nonce)
            for response, nonce in ((other, "n"), (one, "n"), (one, "m"), (one, "o"))
        ]
        assert cache.find(session, one, "v1") is stored[-1]
        assert cache.find(session, other, "v1") is stored[0], "replaced messages do not use up the limit"

    def test_least_recently_used_message_is_evicted(self) -> None:
        cache, session = MessageCache(limit=25_000), delta()
        responses = [self.response(session, make_payload([letter * 3_500])) for letter in "abc"]
        for response in responses[:2]:
            self.store(cache, session, response, "v1", "n")
        assert cache.find(session, responses[0], "v1")
        self.store(cache, session, responses[2], "v1", "n")
        assert [cache.find(session, response, "v1") is not None for response in responses] == [True, False, True]
        large = self.response(session, make_payload(["d" * 13_000]))
        self.store(cache, session, large, "v1", "n")
        assert cache.find(session, large, "v1") is None
        assert cache.find(session, responses[0], "v1"), "an oversized message evicts nothing"
        self.store(cache, session, responses[0], "v1", "m")
        cache.clear()
        assert cache.find(session, responses[0], "v1") is None


def test_random_uuids() -> None:
    uuids = {random_uuid() for _ in range(1000)}
    assert len(uuids) == 1000
    assert all(len(text) == 36 and text[14] == "4" and text[19] == "a" for text in uuids)
