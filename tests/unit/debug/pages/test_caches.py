"""Keys of derivations on debug pages."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.debug.pages.caches import _brief


@pytest.mark.parametrize(
    ("arg", "result"),
    [
        (("a", 1, "b", "c"), "a/1/b/c"),
        (("a", 1, "b", "c", "d"), "tuple"),
        ("x" * 101, "x" * 100 + "… (1 more characters)"),
        (1.5, "float"),
    ],
)
def test_short_keys_are_written_out(arg: Any, result: str) -> None:
    assert _brief(arg) == result
