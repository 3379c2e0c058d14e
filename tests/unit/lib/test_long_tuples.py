"""Long tuples of which few or many items change."""

from __future__ import annotations

import random

import pytest

from pilot.lib.long_tuples import Mapped, changed_items, map_items, replace_items

SIZES = [0, 1, 5, 100]


class Item(str):
    """A string with an identity of its own."""

    __slots__ = ()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("changes", SIZES)
def test_replaced_items_are_sorted_among_the_others(size: int, changes: int) -> None:
    rng = random.Random(size + changes)
    names = [Item(f"{n:04}") for n in range(size + changes)]
    rng.shuffle(names)
    items = tuple(sorted(names[:size]))
    removed, added = rng.sample(items, min(size, changes)), names[size:]
    unchanged = removed[:2]  # removed and added again
    result = replace_items(items, removed, [*added, *unchanged])
    assert list(result) == sorted({*items} - {*removed} | {*added, *unchanged})


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("", "abc"), ("abc", ""), ("abcdef", "abcdef"), ("abcdef", "abdef"), ("abdef", "abcdef"),
     ("abcdef", "axcdyf"), ("aaa", "aa"), ("aa", "aaa"), ("abc", "cba"), ("bc", "abcd")],
)  # fmt: skip
def test_only_results_of_new_items_are_computed(before: str, after: str) -> None:
    items = {letter: Item(letter) for letter in (*before, *after)}
    old, new = tuple(items[letter] for letter in before), tuple(items[letter] for letter in after)
    mapped = map_items(str.upper, old, Mapped())
    calls: list[str] = []

    def compute(item: Item) -> str:
        calls.append(item)
        return item.upper()

    assert map_items(compute, new, mapped) == (new, tuple(after.upper()))
    assert not calls or before != after


def test_one_new_item_has_its_result_computed_alone() -> None:
    items = tuple(Item(f"{n:03}") for n in range(200))
    calls: list[str] = []
    before = map_items(str.upper, items[:70] + items[71:], Mapped())
    map_items(lambda item: calls.append(item) or item, items, before)  # type: ignore[func-returns-value]
    assert calls == [items[70]]


@pytest.mark.parametrize(
    ("before", "after", "gone", "new"),
    [("abcd", "abd", "c", ""), ("abd", "abcd", "", "c"), ("abcd", "axyd", "bc", "xy"), ("abcd", "dcba", "", "")],
)
def test_changed_items(before: str, after: str, gone: str, new: str) -> None:
    assert changed_items(tuple(before), tuple(after)) == ([*gone], [*new])
