"""Splits YAML into chunks that can be parsed separately.

A line that begins with `---` always starts a document, so the input is split there. Input that contains directives
(`%TAG`), or is not encoded in UTF-8, is not split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_BREAK = re.compile(rb"\r\n?|\n|\xc2\x85|\xe2\x80[\xa8\xa9]")
_RARE_BREAKS = (b"\r", b"\xc2\x85", b"\xe2\x80")
_WIDE = (b"\xff\xfe", b"\xfe\xff")


class Chunk(NamedTuple):
    """A part of a file. `lines` is the number of lines before it."""

    text: bytes
    lines: int


def split(data: bytes) -> Iterator[Chunk]:
    """Yield the chunks in order. Their concatenation is `data`."""
    begin = lines = 0
    has_rare = any(rare in data for rare in _RARE_BREAKS)
    whole = data.startswith((*_WIDE, b"%")) or b"\n%" in data
    for end in () if whole else _starts(data):
        text = data[begin:end]
        yield Chunk(text, lines)
        begin, lines = end, lines + _count_lines(text, has_rare)
    if begin < len(data):
        yield Chunk(data[begin:], lines)


def _starts(data: bytes) -> Iterator[int]:
    """Yield the offset of each line that starts a document. The first line is omitted."""
    at = data.find(b"\n---")
    while at >= 0:
        if data[at + 4 : at + 5] in (b"", b" ", b"\t", b"\r", b"\n"):
            yield at + 1
        at = data.find(b"\n---", at + 4)


def _count_lines(text: bytes, has_rare: bool) -> int:
    """Return the number of line breaks as defined by YAML."""
    # Not len(findall()): one long call would block other threads.
    return sum(1 for _ in _BREAK.finditer(text)) if has_rare else text.count(b"\n")
