"""Files of the downward API."""

from __future__ import annotations

import pytest

from pilot.agent.proxy.downward_api import parse_downward_file


def test_downward_api_values_are_unquoted() -> None:
    text = 'app="shop"\nnote="a \\"b\\" \\x41\\u00e9\\n\\a"\n\nempty=""\nno pair'
    assert parse_downward_file(text) == {"app": "shop", "note": 'a "b" Aé\n\a', "empty": ""}


@pytest.mark.parametrize("value", ["plain", "1", '"open', "{}"])
def test_unquoted_value_is_rejected(value: str) -> None:
    with pytest.raises(ValueError, match="the value of app is not a quoted string"):
        parse_downward_file(f"app={value}")
