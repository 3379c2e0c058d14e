"""Incremental JSON encoding of large responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.debug import plain_json
from pilot.debug.plain_json import LazyFields, parts

VALUES: list[Any] = [
    None,
    "a",
    [],
    {},
    [[]],
    [{}],
    {"a": []},
    {"a": {"b": [1, {"c": [2, {"d": {"e": [3]}}]}]}},
    [[[[[[1]]]]]],
]


def lazy(value: Any) -> Any:
    """Return the value with iterators instead of lists and objects."""
    if isinstance(value, dict):
        return LazyFields((name, lazy(item)) for name, item in value.items())
    return map(lazy, value) if isinstance(value, list) else value


def encode(value: Any, pretty: bool) -> str:
    return b"".join(parts(value, pretty)).decode()


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("pretty", [False, True])
def test_lazy_values_are_encoded_like_plain_ones(value: Any, pretty: bool) -> None:
    shallow = lazy(value) if not isinstance(value, dict) or not value else LazyFields(iter(value.items()))
    assert encode(shallow, pretty) == encode(value, pretty)
    assert encode(lazy(value), pretty) == encode(value, pretty)
    assert json.loads(encode(value, pretty)) == value


@pytest.mark.parametrize("pretty", [False, True])
def test_html_characters_are_escaped_like_go(pretty: bool) -> None:
    text = '<a href="x">&\u2028\u2029</a>'
    encoded = encode({text: [text, {"a": text}]}, pretty)
    assert not set("<>&\u2028\u2029") & set(encoded)
    assert '\\u003ca href=\\"x\\"\\u003e\\u0026\\u2028\\u2029\\u003c/a\\u003e' in encoded
    assert json.loads(encoded) == {text: [text, {"a": text}]}


def test_part_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_json, "PART", 10)
    encoded = list(parts([f"item {number}" for number in range(20)], pretty=False))
    assert len(encoded) > 10
    assert all(10 <= len(part) < 20 for part in encoded[:-1])


def test_part_ends_with_the_piece_that_reaches_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_json, "PART", 4)
    assert list(parts(["a", "bc", "d"], pretty=False)) == [b'["a"', b',"bc"', b',"d"', b"]"]
    for size in (3, 4):
        monkeypatch.setattr(plain_json, "PART", size)
        assert list(parts(["a", "b"], pretty=False)) == [b'["a"', b',"b"', b"]"]


def test_encoding_is_lazy() -> None:
    items: list[int] = []
    encoded = parts((items.append(number) or "x" * plain_json.PART for number in range(5)), pretty=False)
    next(encoded)
    assert len(items) == 1


NESTED = {"a": [{"b": {"c": [[1], {"d": [2]}, {}]}}, []], "e": {}, "f": "x"}


def test_encoding_matches_the_json_module() -> None:
    for value in (*VALUES, NESTED, [NESTED, [NESTED]]):
        assert encode(value, pretty=True) == encode(lazy(value), pretty=True) == json.dumps(value, indent=4)
        assert (
            encode(value, pretty=False) == encode(lazy(value), pretty=False) == json.dumps(value, separators=(",", ":"))
        )


def test_deep_levels_are_encoded_in_one_piece() -> None:
    pieces = list(plain_json._pieces([[[[[1, 2], 3], 4], 5], 6], plain_json.LEVELS, -1))
    assert pieces == [
        b"[",
        b"",
        b"[",
        b"",
        b"[",
        b"",
        b"[",
        b"",
        b"[1,2]",
        b",",
        b"3",
        b"]",
        b",",
        b"4",
        b"]",
        b",",
        b"5",
        b"]",
        b",",
        b"6",
        b"]",
    ]


def test_surrogates_are_escaped() -> None:
    invalid, escaped = "a\udc80\ud800\udfff\ue000\ud7ffé", "a\\x80\\ud800\\udfff\ue000\ud7ffé"
    encoded = encode({invalid: [invalid, (invalid, 1), {invalid: None}, [[[[invalid]]]]]}, pretty=False)
    assert json.loads(encoded) == {escaped: [escaped, [escaped, 1], {escaped: None}, [[[[escaped]]]]]}


def test_pretty_encoding() -> None:
    value = {
        "a": [1, {"b": LazyFields(iter([("c", []), ("d", {"e": [{"f": {}}]})]))}],
        "\udcff": iter(()),
        "g": {"h": "\ud800x", "i": ["\udcff"]},
    }
    encoded = b"".join(parts(value, pretty=True)).decode()
    assert encoded.splitlines() == [
        "{",
        '    "a": [',
        "        1,",
        "        {",
        '            "b": {',
        '                "c": [],',
        '                "d": {',
        '                    "e": [',
        "                        {",
        '                            "f": {}',
        "                        }",
        "                    ]",
        "                }",
        "            }",
        "        }",
        "    ],",
        '    "\\\\xff": [],',
        '    "g": {',
        '        "h": "\\\\ud800x",',
        '        "i": [',
        '            "\\\\xff"',
        "        ]",
        "    }",
        "}",
    ]
