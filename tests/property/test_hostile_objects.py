"""Inputs that a search for the largest cost has found, processed by the code behind their entrances.

The work for each is limited by a number of calls, not by time. `bench/hostile.py` searches for more, and sends them to a
process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import pathlib
import random
import selectors
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from testing.hostile import kinds
from testing.hostile.kinds import KINDS, SAME_CODE
from testing.hostile.product import Product
from testing.hostile.search import make

CORPUS: dict[str, list[dict[str, int]]] = json.loads((pathlib.Path(kinds.__file__).parent / "worst.json").read_text())
CALLS_PER_BYTE = 30
FIXED_CALLS = 2_000_000
"""Limits of the calls for an input. The worst one of the corpus takes less than half of them."""
EXPANDING = {"several ServiceEntries": 40_000_000, "several Services": 40_000_000, "many objects": 40_000_000}
"""Limits of the calls for kinds whose inputs expand to the limit of a namespace, whatever their size."""
SCHEDULING = (
    str(pathlib.Path(asyncio.__file__).parent),
    str(pathlib.Path(concurrent.futures.__file__).parent),
    selectors.__file__,
    threading.__file__,
)
"""Paths of the modules whose calls are not counted. Their number depends on the speed of the machine."""
INPUTS = [
    (kind, entrance, number)
    for kind, genes in CORPUS.items()
    for entrance in KINDS[kind].entrances
    if entrance not in SAME_CODE
    for number in range(len(genes))
]


class TooMuchWork(BaseException):
    """An input caused more calls than the limit. No handler of exceptions catches this."""


@contextmanager
def limited_calls(most: int) -> Iterator[None]:
    calls = 0

    def count(frame: FrameType, *_: object) -> None:
        nonlocal calls
        if frame.f_code.co_filename.startswith(SCHEDULING):
            return
        calls += 1
        if calls > most:
            raise TooMuchWork(f"more than {most} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    result = Product(tmp_path_factory.mktemp("product"))
    yield result
    result.close()


def test_each_kind_has_worst_inputs() -> None:
    assert CORPUS.keys() == KINDS.keys()
    assert all(genes for genes in CORPUS.values())


@pytest.mark.parametrize(("kind", "entrance", "number"), INPUTS)
def test_worst_input_is_processed_in_linear_work(product: Product, kind: str, entrance: str, number: int) -> None:
    shape = make(random.Random(0), CORPUS[kind][number], KINDS[kind].build)
    assert shape.genes == CORPUS[kind][number]
    with limited_calls(EXPANDING.get(kind, FIXED_CALLS) + CALLS_PER_BYTE * shape.size):
        assert not product.process(entrance, shape.value)
