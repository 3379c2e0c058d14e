"""Suppression of repeated log lines."""

from __future__ import annotations

import logging

from pilot.lib.logging import repeats as log_repeats
from pilot.lib.logging.repeats import MAX_REPEATS, WINDOW, Repeats


def record(message: str, created: float, *args: object) -> logging.LogRecord:
    log_record = logging.LogRecord("pilot.ads", logging.WARNING, "", 0, message, args, None)
    log_record.created = created
    return log_record


def test_repeated_lines_are_suppressed_and_counted() -> None:
    repeats = Repeats()
    results = [repeats.filter(record("%s is 5%% late", 100.0, "x")) for _ in range(MAX_REPEATS + 3)]
    assert results == [True] * MAX_REPEATS + [False] * 3
    assert repeats.filter(record("%s is 5%% late", 100.0, "y")), "each message has a separate count"
    first_line = record("%s is 5%% late", 100.0 + WINDOW, "x")
    assert repeats.filter(first_line)
    assert first_line.getMessage() == "x is 5% late (3 more identical lines were dropped)"
    second_line = record("%s is 5%% late", 100.0 + WINDOW, "x")
    assert repeats.filter(second_line)
    assert second_line.getMessage() == "x is 5% late"


def test_number_of_remembered_lines_is_limited() -> None:
    repeats = Repeats()
    for number in range(log_repeats.CAPACITY + 1):
        for _ in range(MAX_REPEATS):
            repeats.filter(record("line %d", 0.0, number))
    assert repeats.filter(record("line %d", 0.0, 0)), "the oldest line is forgotten"
    assert not repeats.filter(record("line %d", 0.0, 2)), "the others are remembered"


def test_suppressed_count_follows_a_pause_and_survives_eviction() -> None:
    repeats = Repeats()
    lines = [record("%s is late", 100.0, "x") for _ in range(MAX_REPEATS)]
    assert [(repeats.filter(line), line.getMessage()) for line in lines] == [(True, "x is late")] * MAX_REPEATS
    assert not repeats.filter(record("%s is late", 100.0 + WINDOW - 0.001, "x"))
    late_line = record("%s is late", 100.0 + WINDOW, "x")
    assert (repeats.filter(late_line), late_line.getMessage()) == (
        True,
        "x is late (1 more identical lines were dropped)",
    )
    for number in range(log_repeats.CAPACITY - 1):
        repeats.filter(record("line %d", 0.0, number))
    repeats.filter(record("%s is late", 100.0 + 2 * WINDOW, "x"))  # makes it the most recent
    repeats.filter(record("another", 0.0))
    results = [repeats.filter(record("%s is late", 100.0 + 2 * WINDOW, "x")) for _ in range(MAX_REPEATS)]
    assert results == [True] * (MAX_REPEATS - 1) + [False], "the count is kept"
    invalid_line = logging.LogRecord("pilot.ads", logging.WARNING, "", 0, "%d", ("x",), None)
    assert [repeats.filter(invalid_line) for _ in range(MAX_REPEATS + 1)] == [True] * (MAX_REPEATS + 1), (
        "the handler reports the error"
    )


def test_lines_are_counted_per_scope_and_level() -> None:
    repeats = Repeats()
    for name, level in (("pilot.ads", logging.WARNING), ("pilot.ads", logging.ERROR), ("pilot.ca", logging.WARNING)):
        lines = [logging.LogRecord(name, level, "", 0, "it is late", None, None) for _ in range(MAX_REPEATS + 1)]
        for line in lines:
            line.created = 100.0
        assert [repeats.filter(line) for line in lines] == [True] * MAX_REPEATS + [False]
