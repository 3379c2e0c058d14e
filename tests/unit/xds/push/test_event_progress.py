"""Progress of push events."""

from __future__ import annotations

from pilot.xds.push.event_progress import MAX_EVENTS, EventOutcome, EventProgress


def test_event_is_reported_when_every_proxy_has_responded_or_disconnected() -> None:
    outcomes: list[EventOutcome] = []
    time = 0.0
    progress = EventProgress(outcomes.append, lambda: time)
    progress.begin(7, 3)
    progress.count_response((7,), "acknowledged")
    progress.count_response((7,), "disconnected")
    assert not outcomes
    time = 2.0
    progress.count_response((6, 7), "nacked")
    assert outcomes == [EventOutcome(7, 3, 1, 1, 1, 2.0, 2.0, seconds_50=2.0)]


def test_proxies_with_an_equal_configuration_are_not_affected() -> None:
    outcomes: list[EventOutcome] = []
    time, delivered = 0.0, list[float]()
    progress = EventProgress(outcomes.append, lambda: time, delivered.append)
    progress.begin(7, 4, age=0.5)
    progress.count_response((7,), "unchanged")
    time = 1.0
    progress.count_response((7,), "unchanged")
    progress.count_response((7,), "acknowledged")
    time = 3.0
    progress.count_response((7,), "acknowledged")
    assert outcomes == [EventOutcome(7, 4, 2, 0, 0, 3.0, 3.0, unchanged=2, seconds_50=1.0)]
    assert (outcomes[0].affected, delivered) == (2, [1.5, 3.5])


def test_event_without_proxies_is_not_tracked() -> None:
    outcomes: list[EventOutcome] = []
    progress = EventProgress(outcomes.append)
    progress.begin(1, 0)
    progress.count_response((1,), "acknowledged")
    assert not outcomes


def test_oldest_event_is_reported_above_the_limit() -> None:
    outcomes: list[EventOutcome] = []
    progress = EventProgress(outcomes.append, lambda: 0.0)
    for event in range(MAX_EVENTS + 1):
        progress.begin(event, 2)
    assert outcomes == [EventOutcome(0, 2, 0, 0, 0, 0.0)]


def test_time_of_the_slowest_proxies_is_told_apart() -> None:
    outcomes: list[EventOutcome] = []
    time = 0.0
    progress = EventProgress(outcomes.append, lambda: time)
    progress.begin(7, 200)
    time = 0.5
    for _ in range(197):
        progress.count_response((7,), "acknowledged")
    time = 1.0
    assert progress.find(7) == EventOutcome(7, 200, 197, 0, 0, 1.0, seconds_50=0.5)
    progress.count_response((7,), "acknowledged")
    time = 3.0
    assert progress.find(7) == EventOutcome(7, 200, 198, 0, 0, 3.0, 1.0, seconds_50=0.5)
    for _ in range(2):
        progress.count_response((7,), "acknowledged")
    assert outcomes == [EventOutcome(7, 200, 200, 0, 0, 3.0, 1.0, seconds_50=0.5)]
    assert progress.find(7) is None
