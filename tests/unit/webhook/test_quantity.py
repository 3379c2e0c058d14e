"""Canonical form of quantities."""

from __future__ import annotations

import pytest

from webhook.pod.quantity import canonical


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2000m", "2"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0", "0"),
        ("100m", "100m"),
        ("1e3", "1e3"),
        ("1E6", "1e6"),
        ("12e-1", "1200e-3"),
        ("-5", "-5"),
        ("+5", "5"),
        (".5", "500m"),
        ("5.", "5"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("3E", "3E"),
        ("1000000", "1M"),
        ("128Mi", "128Mi"),
        ("2048Ki", "2Mi"),
        ("0.25Ki", "256"),
        ("0Ki", "0"),
        ("1.5Ki", "1536"),
        ("1e-9", "1e-9"),
        ("5e-7", "500e-9"),
        ("1024", "1024"),
        ("0.0001Ki", "102400u"),
    ],
)
def test_quantities(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize("text", ["", "a", "1 Gi", "1GiB", "1e", "--1", "1.2.3", "0x1"])
def test_invalid_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        canonical(text)


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", f"1e{'9' * 60}", "1E65"])
def test_huge_exponents_are_refused_before_the_number_is_computed(text: str) -> None:
    with pytest.raises(ValueError, match="the exponent of the quantity is not between -64 and 64"):
        canonical(text)


@pytest.mark.parametrize("text", ["1" * 65, "0." + "1" * 100_000, "1e" + "9" * 100_000])
def test_long_quantities_are_refused_before_they_are_parsed(text: str) -> None:
    with pytest.raises(ValueError, match="the quantity is longer than 64 characters"):
        canonical(text)


@pytest.mark.parametrize("text", ["1" * 64, "1e18", "9223372036854775807", "0.000000001"])
def test_quantities_of_any_practical_size_are_accepted(text: str) -> None:
    assert canonical(text)
