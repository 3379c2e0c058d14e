"""Responses put together from bytes, read by two decoders that share no code with each other."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from envoy_data_plane.envoy.service.discovery import v3 as second

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import CLUSTER, ENDPOINT, find_type
from pilot.xds.push.message_cache import EncodedMessage, MessageCache, random_uuid
from pilot.xds.session.response_encoding import Payload
from pilot.xds.session.session import Response, Session
from pilot.xds.session.snapshot import TypeState
from pilot.xds.session.subscription import Subscription
from testing.clients.scripted_stream import delta, resource, sotw

VIEW = TypeState("plan", ())
NAMES = ["a", "b" * 127, "c" * 128, "ü" * 100, "d" * 20_000]
BOTH = pytest.mark.parametrize("session", [sotw(), delta()], ids=["sotw", "delta"])


def batch(names: list[str]) -> Payload:
    return Payload(resource("cds", name, name) for name in names)


def test_state_of_the_world() -> None:
    answer = Response(CLUSTER, VIEW, (batch(NAMES[:2]), batch(NAMES[2:])))
    data = sotw().encode(answer, "version", "nonce")
    first, other = discovery_pb2.DiscoveryResponse.FromString(data), second.DiscoveryResponse.parse(data)
    assert (first.version_info, first.type_url, first.nonce) == ("version", CLUSTER, "nonce")
    assert (other.version_info, other.type_url, other.nonce) == ("version", CLUSTER, "nonce")
    assert [any_.SerializeToString() for any_ in first.resources] == [resource("cds", name, name).any for name in NAMES]
    assert [any_.value for any_ in other.resources] == [any_.value for any_ in first.resources]
    assert [any_.type_url for any_ in other.resources] == [CLUSTER] * len(NAMES)


def test_delta() -> None:
    answer = Response(CLUSTER, VIEW, (batch(NAMES[:2]), batch(NAMES[2:])), removed=("x" * 200, "y"))
    data = delta().encode(answer, "version", "nonce")
    first, other = discovery_pb2.DeltaDiscoveryResponse.FromString(data), second.DeltaDiscoveryResponse.parse(data)
    for response in (first, other):
        assert (response.system_version_info, response.type_url, response.nonce) == ("version", CLUSTER, "nonce")
        assert list(response.removed_resources) == ["x" * 200, "y"]
        assert [r.name for r in response.resources] == NAMES
        assert [r.version for r in response.resources] == [""] * len(NAMES)
    assert [r.resource.SerializeToString() for r in first.resources] == [
        resource("cds", name, name).any for name in NAMES
    ]
    assert [r.resource.value for r in other.resources] == [r.resource.value for r in first.resources]


@BOTH
def test_nothing(session: Session) -> None:
    data = session.encode(Response(CLUSTER, VIEW, ()), "v", "n")
    assert data == discovery_pb2.DiscoveryResponse(version_info="v", type_url=CLUSTER, nonce="n").SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_000, 16_384, 3_000_000])
def test_a_resource_of_any_size(size: int) -> None:
    made = Resource("name", CLUSTER, b"x" * size)
    wanted = discovery_pb2.DeltaDiscoveryResponse()
    wanted.resources.add(name="name").resource.MergeFromString(made.any)
    assert discovery_pb2.DeltaDiscoveryResponse.FromString(made.head + made.encoded) == wanted
    assert wanted.resources[0].resource.value == b"x" * size


class TestMessages:
    def answer(self, session: Session, batch: Payload, nonce: str = "") -> Response:
        session.subscriptions[CLUSTER] = Subscription(find_type(CLUSTER), session._name_sets.of(frozenset()), True)
        session.subscriptions[CLUSTER].nonce_sent = nonce
        return Response(CLUSTER, VIEW, (batch,))

    def keep(
        self, messages: MessageCache, session: Session, answer: Response, version: str, nonce: str
    ) -> EncodedMessage:
        message = EncodedMessage(nonce, session.encode(answer, version, nonce))
        messages.add(session, answer, version, message)
        return message

    def test_an_equal_answer_has_the_same_message(self) -> None:
        messages, both, session, other = MessageCache(), batch(NAMES), delta(), delta()
        answer = self.answer(session, both)
        assert messages.find(session, answer, "v1") is None
        made = self.keep(messages, session, answer, "v1", "n")
        assert messages.find(other, self.answer(other, both), "v1") is made

    def test_but_not_where_something_differs(self) -> None:
        messages, both, session, world = MessageCache(), batch(NAMES), delta(), sotw()
        answer = self.answer(session, both)
        self.keep(messages, session, answer, "v1", "n")
        assert messages.find(session, answer, "v2") is None
        assert messages.find(session, self.answer(session, batch(NAMES)), "v1") is None
        assert messages.find(session, answer._replace(removed=("x",)), "v1") is None
        assert messages.find(session, answer._replace(type_url=ENDPOINT), "v1") is None
        assert messages.find(world, self.answer(world, both), "v1") is None

    def test_a_stream_does_not_get_a_nonce_twice(self) -> None:
        messages, both, session = MessageCache(), batch(NAMES), delta()
        answer = self.answer(session, both, nonce="n")
        self.keep(messages, session, answer, "v1", "n")
        assert messages.find(session, answer, "v1") is None

    def test_a_message_that_is_made_anew_takes_the_place_of_the_one_before(self) -> None:
        messages, session = MessageCache(limit=25_000), delta()
        one, other = (self.answer(session, batch([letter * 3_500])) for letter in "ab")
        kept = [
            self.keep(messages, session, answer, "v1", nonce)
            for answer, nonce in ((other, "n"), (one, "n"), (one, "m"), (one, "o"))
        ]
        assert messages.find(session, one, "v1") is kept[-1]
        assert messages.find(session, other, "v1") is kept[0], "replaced messages do not count towards the limit"

    def test_bytes_are_bounded_and_who_was_asked_for_last_stays(self) -> None:
        messages, session = MessageCache(limit=25_000), delta()
        answers = [self.answer(session, batch([letter * 3_500])) for letter in "abc"]
        for answer in answers[:2]:
            self.keep(messages, session, answer, "v1", "n")
        assert messages.find(session, answers[0], "v1")
        self.keep(messages, session, answers[2], "v1", "n")
        assert [messages.find(session, answer, "v1") is not None for answer in answers] == [True, False, True]
        large = self.answer(session, batch(["d" * 13_000]))
        self.keep(messages, session, large, "v1", "n")
        assert messages.find(session, large, "v1") is None
        assert messages.find(session, answers[0], "v1"), "a message that is too large pushes nothing out"
        self.keep(messages, session, answers[0], "v1", "m")
        messages.clear()
        assert messages.find(session, answers[0], "v1") is None


def test_uuids() -> None:
    made = {random_uuid() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(text) == 36 and text[14] == "4" and text[19] == "a" for text in made)
