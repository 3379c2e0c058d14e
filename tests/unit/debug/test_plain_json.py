"""Large answers as JSON, a piece at a time."""

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
    """Returns the value with iterators in the place of all its lists, and of its objects."""
    if isinstance(value, dict):
        return LazyFields((name, lazy(item)) for name, item in value.items())
    return map(lazy, value) if isinstance(value, list) else value


def whole(value: Any, pretty: bool) -> str:
    return b"".join(parts(value, pretty)).decode()


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("pretty", [False, True])
def test_what_is_made_when_it_is_written_looks_the_same(value: Any, pretty: bool) -> None:
    shallow = lazy(value) if not isinstance(value, dict) or not value else LazyFields(iter(value.items()))
    assert whole(shallow, pretty) == whole(value, pretty)
    assert whole(lazy(value), pretty) == whole(value, pretty)
    assert json.loads(whole(value, pretty)) == value


@pytest.mark.parametrize("pretty", [False, True])
def test_what_go_escapes_is_escaped(pretty: bool) -> None:
    text = '<a href="x">&\u2028\u2029</a>'
    made = whole({text: [text, {"a": text}]}, pretty)
    assert not set("<>&\u2028\u2029") & set(made)
    assert '\\u003ca href=\\"x\\"\\u003e\\u0026\\u2028\\u2029\\u003c/a\\u003e' in made
    assert json.loads(made) == {text: [text, {"a": text}]}


def test_parts_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_json, "PART", 10)
    made = list(parts([f"item {number}" for number in range(20)], pretty=False))
    assert len(made) > 10
    assert all(10 <= len(part) < 20 for part in made[:-1])


def test_a_part_is_full_with_the_piece_that_reaches_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_json, "PART", 4)
    assert list(parts(["a", "bc", "d"], pretty=False)) == [b'["a"', b',"bc"', b',"d"', b"]"]


def test_a_list_is_made_no_faster_than_it_is_taken() -> None:
    made: list[int] = []
    wanted = parts((made.append(number) or "x" * plain_json.PART for number in range(5)), pretty=False)
    next(wanted)
    assert len(made) == 1


NESTED = {"a": [{"b": {"c": [[1], {"d": [2]}, {}]}}, []], "e": {}, "f": "x"}


def test_indented_json_is_what_json_itself_indents_by_four() -> None:
    for value in (*VALUES, NESTED, [NESTED, [NESTED]]):
        assert whole(value, pretty=True) == whole(lazy(value), pretty=True) == json.dumps(value, indent=4)
        assert (
            whole(value, pretty=False) == whole(lazy(value), pretty=False) == json.dumps(value, separators=(",", ":"))
        )


def test_what_is_below_four_levels_is_made_in_one_piece() -> None:
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


def test_a_part_that_is_as_large_as_parts_are_is_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_json, "PART", 3)
    assert list(parts(["a", "b"], pretty=False)) == [b'["a"', b',"b"', b"]"]
    monkeypatch.setattr(plain_json, "PART", 4)
    assert list(parts(["a", "b"], pretty=False)) == [b'["a"', b',"b"', b"]"]


def test_what_is_no_text_is_written_with_escapes() -> None:
    bad, shown = "a\udc80\ud800\udfff\ue000\ud7ffé", "a\\x80\\ud800\\udfff\ue000\ud7ffé"
    made = whole({bad: [bad, (bad, 1), {bad: None}, [[[[bad]]]]]}, pretty=False)
    assert json.loads(made) == {shown: [shown, [shown, 1], {shown: None}, [[[[shown]]]]]}
