"""Queries of profile pages."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.debug.page import FileAnswer, Later, TextAnswer
from pilot.debug.pages import profiles


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("", 0),
        ("0", 0),
        ("1", 1),
        ("2", 2),
        ("999", 999),
        ("1000", 0),
        ("-1", 0),
        ("x", 0),
        ("٢", 0),
        ("²", 0),
        ("1.0", 0),
    ],
)
def test_profile_debug_level(text: str, level: int) -> None:
    assert profiles._debug({"debug": text}) == level
    assert profiles._debug({}) == 0


@pytest.mark.parametrize(("page", "head"), [("block", "contention"), ("mutex", "mutex")])
def test_unsupported_profiles_have_no_samples(page: str, head: str) -> None:
    [handler] = [handler for name, _, handler in profiles._ABOUT if name == page]
    sources: Any = object()

    def request(**query: str) -> Any:
        deferred = handler(sources, query)
        assert isinstance(deferred, Later)
        return deferred.make()

    text = request(debug="1")
    assert isinstance(text, TextAnswer)
    assert text.text.startswith(f"--- {head}:\ncycles/second=1000000000\n")
    for query, name in (({}, page), ({"debug": "0"}, page), ({"seconds": "1"}, f"{page}-delta")):
        response = request(**query)
        assert isinstance(response, FileAnswer)
        assert response.name == name
