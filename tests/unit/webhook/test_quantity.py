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
