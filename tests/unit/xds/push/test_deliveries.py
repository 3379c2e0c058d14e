"""Deliveries of changes to one stream."""

from __future__ import annotations

import random

from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.xds.push.deliveries import (
    MAX_EVENTS,
    MAX_RESPONSES,
    NO_LISTENERS_SECONDS,
    NO_ROUTES_SECONDS,
    Answered,
    Deliveries,
)


def send(deliveries: Deliveries, type_url: str, nonce: str, *names: str, is_whole: bool = False) -> None:
    """Send a response with some resources, or with one that has the name of the nonce. Nothing else was requested."""
    deliveries.on_sent(type_url, nonce, lambda: names or (nonce,), is_whole)


def respond(deliveries: Deliveries, type_url: str, nonce: str) -> None:
    """Send a response to a request."""
    deliveries.on_sent(type_url, nonce, lambda: (nonce,), is_requested=True)


def process(deliveries: Deliveries, *responses: tuple[str, ...], is_complete: bool = True) -> None:
    deliveries.begin()
    for type_url, nonce, *names in responses:
        send(deliveries, type_url, nonce, *names)
    deliveries.end(is_complete)


def test_change_is_delivered_with_the_last_of_its_acknowledgements() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    assert deliveries.waits_for(1)
    process(deliveries, (CLUSTER, "a"), (ROUTE, "b"))
    assert (deliveries.waits_for(1), deliveries.is_unanswered(1), deliveries.processed) == (False, True, (1,))
    deliveries.on_response(ROUTE, "b")
    assert deliveries.take_answered() == []
    deliveries.on_response(CLUSTER, "a")
    assert deliveries.take_answered() == [Answered((1,), "acknowledged")]
    assert (deliveries.is_unanswered(1), deliveries.is_settled) == (False, True)


def test_later_responses_do_not_delay_a_change() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "a"))
    deliveries.add(2)
    process(deliveries, (ROUTE, "b"))
    deliveries.on_response(ROUTE, "a")
    assert deliveries.take_answered() == [Answered((1,), "acknowledged")]
    assert (deliveries.is_unanswered(1), deliveries.is_unanswered(2)) == (False, True)


def test_acknowledgement_includes_earlier_responses() -> None:
    deliveries = Deliveries()
    for event, nonce in ((1, "a"), (2, "b")):
        deliveries.add(event)
        process(deliveries, (ROUTE, nonce))
    deliveries.on_response(ROUTE, "other")
    assert deliveries.take_answered() == []
    deliveries.on_response(ROUTE, "b")
    assert [answered.events for answered in deliveries.take_answered()] == [(1,), (2,)]


def test_equal_configuration_is_delivered_at_once() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries)
    assert deliveries.take_answered() == [Answered((1,), "unchanged")]


def test_change_during_processing_includes_the_responses_after_it() -> None:
    deliveries = Deliveries()
    deliveries.begin()
    send(deliveries, CLUSTER, "before")
    deliveries.add(1)
    send(deliveries, ROUTE, "a")
    deliveries.end(is_complete=True)
    process(deliveries)
    assert deliveries.take_answered() == [], "the routes may include the change"
    deliveries.on_response(ROUTE, "a")
    assert deliveries.take_answered() == [Answered((1,), "acknowledged")]


def test_endpoints_that_are_held_back_belong_to_the_change() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (CLUSTER, "a"), is_complete=False)
    deliveries.on_response(CLUSTER, "a")
    assert (deliveries.take_answered(), deliveries.waits_for(1)) == ([], True)
    deliveries.begin()
    assert deliveries.event == 1
    send(deliveries, ENDPOINT, "b")
    deliveries.end(is_complete=True)
    deliveries.on_response(ENDPOINT, "b")
    assert deliveries.take_answered() == [Answered((1,), "acknowledged")]


def test_refusal_remains_although_later_responses_are_acknowledged() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "a"), (ROUTE, "b"))
    deliveries.on_response(ROUTE, "a", "no such thing")
    assert deliveries.take_answered() == [], "the second response is in flight"
    deliveries.on_response(ROUTE, "b")
    assert deliveries.take_answered() == [Answered((1,), "nacked")]
    deliveries.add(2)
    process(deliveries, (ROUTE, "c"))
    deliveries.on_response(ROUTE, "c")
    assert deliveries.take_answered() == [Answered((2,), "acknowledged")]
    assert (deliveries.refusal(1), deliveries.refusal(2)) == ("rds: no such thing", "")


def test_refusal_ends_when_all_rejected_resources_have_been_acknowledged() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "a", "80", "81"), (CLUSTER, "b"))
    deliveries.on_response(ROUTE, "a", "no such thing")
    deliveries.on_response(CLUSTER, "b")
    assert deliveries.take_answered() == [Answered((1,), "nacked")]
    for number, (name, expected) in enumerate((("80", "rds: no such thing"), ("81", "")), 2):
        deliveries.add(number)
        process(deliveries, (ROUTE, f"c{number}", name))
        deliveries.on_response(ROUTE, f"c{number}")
        deliveries.take_answered()
        assert deliveries.refusal(1) == expected


def test_refusal_ends_with_the_acknowledgement_of_everything() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (CLUSTER, "a", "deleted later"))
    deliveries.on_response(CLUSTER, "a", "bad")
    deliveries.take_answered()
    send(deliveries, CLUSTER, "b", "other", is_whole=True)
    deliveries.on_response(CLUSTER, "b")
    assert deliveries.refusal(1) == ""


def test_refusal_of_another_type_remains() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (CLUSTER, "a", "c"), (ROUTE, "b", "80"))
    deliveries.on_response(CLUSTER, "a", "bad")
    deliveries.on_response(ROUTE, "b", "bad")
    deliveries.take_answered()
    send(deliveries, CLUSTER, "d", "c")
    deliveries.on_response(CLUSTER, "d")
    assert deliveries.refusal(1) == "rds: bad"


def test_many_waiting_changes_use_bounded_memory_and_stay_unanswered() -> None:
    deliveries = Deliveries()
    for event in range(1, MAX_EVENTS + 11):
        deliveries.add(event)
    assert (deliveries.waits_for(1), deliveries.waits_for(MAX_EVENTS + 11)) == (True, False)
    process(deliveries, (ROUTE, "a"))
    assert deliveries.is_unanswered(1)
    deliveries.on_response(ROUTE, "a", "bad")
    (answered,) = deliveries.take_answered()
    assert (len(answered.events), answered.state, deliveries.is_unanswered(1)) == (MAX_EVENTS, "nacked", False)
    deliveries.add(5000)
    process(deliveries, (ROUTE, "b"))
    deliveries.on_response(ROUTE, "b", "bad")
    deliveries.take_answered()
    assert deliveries.refusal(1) == "too many changes were refused"


def test_first_configuration_ends_with_the_routes() -> None:
    deliveries = Deliveries()
    process(deliveries, (CLUSTER, "a"), (LISTENER, "b"))
    deliveries.on_response(CLUSTER, "a")
    assert not deliveries.check_start(NO_LISTENERS_SECONDS), "the listeners are in flight"
    deliveries.on_response(LISTENER, "b")
    assert not deliveries.check_start(0.0)
    process(deliveries, (ROUTE, "c"))
    deliveries.on_response(ROUTE, "c", "bad")
    assert (deliveries.check_start(0.0), deliveries.start_refusal) == (True, "rds: bad")


def test_first_configuration_does_not_include_later_changes() -> None:
    deliveries = Deliveries()
    respond(deliveries, LISTENER, "a")
    respond(deliveries, ROUTE, "b")
    deliveries.on_response(LISTENER, "a")
    deliveries.add(1)
    process(deliveries, (ROUTE, "c"))
    deliveries.on_response(ROUTE, "b")
    assert deliveries.check_start(0.0)
    assert deliveries.is_unanswered(1)


def test_first_configuration_includes_everything_that_was_requested_in_the_meantime() -> None:
    deliveries = Deliveries()
    respond(deliveries, LISTENER, "a")
    respond(deliveries, ROUTE, "b")
    respond(deliveries, ENDPOINT, "c")
    deliveries.on_response(LISTENER, "a")
    respond(deliveries, ROUTE, "d")
    deliveries.on_response(ROUTE, "b")
    assert not deliveries.check_start(0.0), "more routes were requested"
    deliveries.on_response(ROUTE, "d")
    assert not deliveries.check_start(0.0), "the endpoints are in flight"
    deliveries.on_response(ENDPOINT, "c")
    assert deliveries.check_start(0.0)


def test_first_configuration_without_routes_ends_after_a_pause() -> None:
    with_listeners, without = Deliveries(), Deliveries()
    process(with_listeners, (LISTENER, "a"))
    with_listeners.on_response(LISTENER, "a")
    assert [with_listeners.check_start(NO_ROUTES_SECONDS), without.check_start(NO_ROUTES_SECONDS)] == [True, False]
    assert without.check_start(NO_LISTENERS_SECONDS)


def test_unanswered_changes_are_returned_once() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "a"))
    deliveries.add(2)
    assert deliveries.take_unanswered() == (1, 2)
    assert (deliveries.take_unanswered(), deliveries.is_settled) == ((), True)


def test_type_without_a_subscription_is_not_waited_for() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "a"))
    deliveries.drop_type(ROUTE)
    assert deliveries.take_answered() == [Answered((1,), "acknowledged")]


def test_change_between_two_responses_of_another_type_is_not_refused_with_them() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "a"))
    deliveries.add(2)
    process(deliveries, (CLUSTER, "b"))
    deliveries.add(3)
    process(deliveries, (ROUTE, "c"))
    deliveries.on_response(ROUTE, "c", "bad")
    deliveries.on_response(CLUSTER, "b")
    assert [answered.state for answered in deliveries.take_answered()] == ["nacked", "acknowledged", "nacked"]


def test_response_with_a_forgotten_nonce_is_answered_with_the_next_known_one() -> None:
    deliveries = Deliveries()
    deliveries.add(1)
    process(deliveries, (ROUTE, "first"))
    process(deliveries, *((ROUTE, str(number)) for number in range(MAX_RESPONSES)))
    deliveries.on_response(ROUTE, "first")
    assert (deliveries.take_answered(), deliveries.is_unanswered(1)) == ([], True)
    deliveries.on_response(ROUTE, "0")
    assert deliveries.take_answered() == [Answered((1,), "acknowledged")]


def test_changes_are_answered_with_the_last_of_their_responses_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    deliveries, types = Deliveries(), (CLUSTER, ENDPOINT, ROUTE)
    unanswered: dict[str, list[str]] = {type_url: [] for type_url in types}
    awaited: dict[int, set[str]] = {}
    for event in range(1, 1000):
        deliveries.add(event)
        nonces = [f"{event}/{number}" for number in range(rng.randrange(4))]
        responses = [(rng.choice(types), nonce) for nonce in nonces]
        process(deliveries, *responses)
        awaited[event] = set(nonces)
        for type_url, nonce in responses:
            unanswered[type_url].append(nonce)
        for type_url in rng.sample(types, len(types)):
            waiting = unanswered[type_url]
            if waiting and (rng.random() < 0.03 or len(waiting) > MAX_RESPONSES - 3):
                nonce = rng.choice(waiting[3:] or waiting)
                deliveries.on_response(type_url, nonce)
                answered = waiting[: waiting.index(nonce) + 1]
                del waiting[: len(answered)]
                for numbers in awaited.values():
                    numbers.difference_update(answered)
        done = {event for event, numbers in awaited.items() if not numbers}
        assert {event for batch in deliveries.take_answered() for event in batch.events} == done
        for event in done:
            del awaited[event]
    assert awaited
