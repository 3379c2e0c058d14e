from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilot.lib.duration import Duration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("5s", 5_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("100ms", 100_000_000),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("7ns", 7),
        ("1h30m", 5_400_000_000_000),
        ("1h15m30.918s", 4_530_918_000_000),
        ("-2m", -120_000_000_000),
        ("+3s", 3_000_000_000),
        ("0.3333333333333333333h", 1_199_999_999_999),
    ],
)
def test_parse_duration(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1d", "1 s", "1s ", "5 seconds", "--1s", "1s-2s", "1,5s", ".s", "1e3s", "٣s", "3000000h"]
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500ms", "1.5s"), ("1h", "3600s"), ("-100ms", "-0.1s"), ("7ns", "0.000000007s"), ("0s", "0s")],
)
def test_str_is_in_protobuf_format(text: str, seconds: str) -> None:
    assert str(parse_duration(text)) == seconds


@pytest.mark.parametrize("text", ["0s", "100ms", "1500us", "7ns", "1s", "1.5s", "45s", "1m", "1h30m", "2h5s", "-10s"])
def test_format_duration(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_formatted_durations_round_trip(nanoseconds: int) -> None:
    assert parse_duration(format_duration(Duration(nanoseconds))) == nanoseconds
    assert parse_duration(str(Duration(nanoseconds))) == nanoseconds


def test_seconds() -> None:
    assert Duration.of(1.5) == 1_500_000_000
    assert parse_duration("250ms").seconds == 0.25
