"""Sets that take little memory."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.derive.small_sets import ManyItems, SmallSet, with_item, without_item


@pytest.mark.parametrize("create", [dict.fromkeys, ManyItems])
@pytest.mark.parametrize("count", [1, 32, 33, 5000])
def test_items_are_added_and_removed_once(count: int, create: Any) -> None:
    numbers: SmallSet[int] = ()
    for number in (*range(count), *range(count)):
        numbers = with_item(numbers, number * 8, create)
    assert (len(numbers), sorted(numbers)) == (count, [number * 8 for number in range(count)])
    for number in range(count - 1):
        numbers = without_item(without_item(numbers, number * 8), number * 8)
    assert (len(numbers), list(numbers), (count - 1) * 8 in numbers) == (1, [(count - 1) * 8], True)
    assert without_item(numbers, (count - 1) * 8) == ()
