"""Events are followed to the proxies that acknowledged them; lines of the log that repeat are counted."""

from __future__ import annotations

import logging

from pilot.lib import log_repeats
from pilot.lib.log_repeats import MAX_REPEATS, WINDOW, Repeats
from pilot.xds.push.event_progress import MAX_EVENTS, EventOutcome, EventProgress


def test_an_event_is_told_when_every_proxy_has_answered_or_gone() -> None:
    told: list[EventOutcome] = []
    clock = iter((0.0, 2.0)).__next__
    progress = EventProgress(told.append, clock)
    progress.begin(7, 3)
    progress.count_response((7,), has_nacked=False)
    progress.count_disconnect((7,))
    assert not told
    progress.count_response((6, 7), has_nacked=True)
    assert told == [EventOutcome(7, 3, 1, 1, 1, 2.0)]


def test_an_event_that_concerns_nobody_is_not_followed() -> None:
    told: list[EventOutcome] = []
    progress = EventProgress(told.append)
    progress.begin(1, 0)
    progress.count_response((1,), has_nacked=False)
    assert not told


def test_of_too_many_events_the_oldest_is_told_as_it_is() -> None:
    told: list[EventOutcome] = []
    progress = EventProgress(told.append, lambda: 0.0)
    for event in range(MAX_EVENTS + 1):
        progress.begin(event, 2)
    assert told == [EventOutcome(0, 2, 0, 0, 0, 0.0)]


def record(message: str, at: float, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("pilot.ads", logging.WARNING, "", 0, message, args, None)
    made.created = at
    return made


def test_an_equal_line_is_written_a_few_times_and_then_counted() -> None:
    repeats = Repeats()
    passed = [repeats.filter(record("%s is 5%% late", 100.0, "x")) for _ in range(MAX_REPEATS + 3)]
    assert passed == [True] * MAX_REPEATS + [False] * 3
    assert repeats.filter(record("%s is 5%% late", 100.0, "y")), "another line is another matter"
    later = record("%s is 5%% late", 100.0 + WINDOW, "x")
    assert repeats.filter(later)
    assert later.getMessage() == "x is 5% late (3 more of these were left out)"
    again = record("%s is 5%% late", 100.0 + WINDOW, "x")
    assert repeats.filter(again)
    assert again.getMessage() == "x is 5% late"


def test_only_so_many_lines_are_remembered() -> None:
    repeats = Repeats()
    for number in range(log_repeats.CAPACITY + 10):
        repeats.filter(record("line %d", 0.0, number))
    assert len(repeats._recent) == log_repeats.CAPACITY


def test_only_the_line_after_a_pause_says_what_was_left_out_and_lines_that_repeat_are_remembered_longest() -> None:
    repeats = Repeats()
    said = [record("%s is late", 100.0, "x") for _ in range(MAX_REPEATS)]
    assert [(repeats.filter(line), line.getMessage()) for line in said] == [(True, "x is late")] * MAX_REPEATS
    assert not repeats.filter(record("%s is late", 100.0 + WINDOW - 0.001, "x"))
    late = record("%s is late", 100.0 + WINDOW, "x")
    assert (repeats.filter(late), late.getMessage()) == (True, "x is late (1 more of these were left out)")
    for number in range(log_repeats.CAPACITY - 1):
        repeats.filter(record("line %d", 0.0, number))
    repeats.filter(record("%s is late", 100.0 + 2 * WINDOW, "x"))  # moves it behind them
    repeats.filter(record("another", 0.0))
    again = [repeats.filter(record("%s is late", 100.0 + 2 * WINDOW, "x")) for _ in range(MAX_REPEATS)]
    assert again == [True] * (MAX_REPEATS - 1) + [False], "it was not forgotten"
    broken = logging.LogRecord("pilot.ads", logging.WARNING, "", 0, "%d", ("x",), None)
    assert [repeats.filter(broken) for _ in range(MAX_REPEATS + 1)] == [True] * (MAX_REPEATS + 1), (
        "the handler tells of it"
    )


def test_equal_texts_of_other_scopes_and_levels_are_other_lines() -> None:
    repeats = Repeats()
    for name, level in (("pilot.ads", logging.WARNING), ("pilot.ads", logging.ERROR), ("pilot.ca", logging.WARNING)):
        lines = [logging.LogRecord(name, level, "", 0, "it is late", None, None) for _ in range(MAX_REPEATS + 1)]
        for line in lines:
            line.created = 100.0
        assert [repeats.filter(line) for line in lines] == [True] * MAX_REPEATS + [False]
