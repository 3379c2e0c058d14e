"""JSON in the format of Go's encoding/json."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.lib.go_json import encode


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ({"b": [1, 2.5, None], "a": {"é": True}}, '{"a":{"é":true},"b":[1,2.5,null]}'),
        ("<a & b>\u2028", '"\\u003ca \\u0026 b\\u003e\\u2028"'),
        ('"\\\n\t\x01', '"\\"\\\\\\n\\t\\u0001"'),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (2**53, "9007199254740992"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (-0.1, "-0.1"),
        (0, "0"),
        (-0.0, "-0"),
        (100, "100"),
    ],
)
def test_encoded_values(value: Any, text: str) -> None:
    assert encode(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_are_rejected(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode(value)
