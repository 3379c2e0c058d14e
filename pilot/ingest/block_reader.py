"""Reads documents of YAML. One that is laid out like earlier ones is read by what was learnt from those: it differs in values alone."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from pilot.ingest.block_yaml import ITEM, KEY, Block, Words, decoded, has_text_block, read_block, taken_apart
from pilot.ingest.lines import Inside
from pilot.ingest.skeleton import Skeleton

_LINE = re.compile(rf"( *(?:(?:- +)?{KEY}:(?: +(?=[^ \n#])| *(?:#.*)?$)|- +(?=[^ \n#]))|.*)(.*)\n?", re.MULTILINE)
"""Matches a line: what comes before its value, and the value. A line without a value, or that is no key or item, counts as coming before one."""
_VALUE = r"([^ \n#].*+)"
_ITEM = f"({ITEM})"
_LONGEST = (
    1 << 12
)  # bytes of a document that is compared with others: the expressions that find them stay in memory, up to 512
_MOST = 50  # layouts that are remembered, of any number of lines
_TRIES = 8  # of the same number
_TRIED = 100  # documents after which it shows whether they are alike


class _Part(NamedTuple):
    """What is before a value, with what ends the line before, the value, and a pattern of such values; "" where there is none."""

    before: str
    value: str = ""
    pattern: str = ""


def _parts(before: str, value: str) -> Iterator[_Part]:
    """Yields the parts of a line. Of a mapping or list in brackets each value is one."""
    inner = taken_apart(value) if value[:1] in ("[", "{") else ()
    if inner and not inner[-1][1] and all(head for head, _ in inner):
        for head, item in inner[:-1]:
            yield _Part(before + head, item, _ITEM)
            before = ""
        yield _Part(before + inner[-1][0])
    elif value:
        yield _Part(before, value, _VALUE)
    else:
        yield _Part(before)
    yield _Part("\n")


class _Layout(NamedTuple):
    """What documents of one layout share: the pattern of their text, the skeleton that their values are put into, and, as in `Block`, the line that
    they begin at and the lines inside."""

    text: re.Pattern[str]
    skeleton: Skeleton
    line: int
    inside: Inside


class BlockReader:
    """Reads documents, and remembers their words and layouts."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._layouts: dict[int, list[_Layout]] = {}  # by the number of lines
        self._met: Counter[tuple[tuple[str, str], ...]] = Counter()  # documents by their parts, but for values
        self.alike = self._unlike = 0  # documents that were like others that are known, and others

    def read(self, data: bytes) -> Block:
        """Returns what `read_block` does. Raises NotSimple."""
        if len(data) > _LONGEST or self._unlike > max(_TRIED, self.alike):
            return read_block(data, self._words)
        for layout in self._layouts.get(data.count(b"\n"), ()):
            if found := layout.text.fullmatch(decoded(data)):
                self.alike += 1
                known = self._words.values
                return Block(
                    layout.skeleton.fill([known[value] for value in found.groups()]), layout.line, layout.inside
                )
        block = read_block(data, self._words)
        self._unlike += 1
        if len(self._met) < _MOST:
            self._note(decoded(data))
        return block

    def _note(self, text: str) -> None:
        """Takes note of a document that was read, and learns its layout if it is the second of that."""
        if has_text_block(text):
            return
        parts = [part for line in _LINE.findall(text)[:-1] for part in _parts(*line)]
        layout = tuple((before, pattern) for before, _, pattern in parts)
        self._met[layout] += 1
        if self._met[layout] != 2:
            return
        pattern = "".join(re.escape(before) + pattern for before, _, pattern in parts)
        count = itertools.count()
        sample = "".join(f"{before}{next(count) if value else ''}" for before, value, _ in parts)
        plain, line, inside = read_block(sample.encode(), self._words)
        skeleton = Skeleton(plain, next(count))
        layouts = self._layouts.setdefault(text.count("\n"), [])
        if skeleton.takes_all and len(layouts) < _TRIES:
            layouts.append(_Layout(re.compile(pattern), skeleton, line, inside))
