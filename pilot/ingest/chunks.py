"""A YAML text in pieces that can be parsed alone, one after another.

A line that begins with `---` begins a document wherever it is, so a text is cut there. A text with directives (`%TAG`), and one that
is not UTF-8, stays whole.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_START = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_DIRECTIVE = re.compile(rb"^%", re.MULTILINE)
_BREAK = re.compile(rb"\r\n?|\n|\xc2\x85|\xe2\x80[\xa8\xa9]")
_WIDE = (b"\xff\xfe", b"\xfe\xff")


class Chunk(NamedTuple):
    """`lines` are before it in the file."""

    text: bytes
    lines: int


def split(data: bytes) -> Iterator[Chunk]:
    """Every piece, in order. Together they are the whole text."""
    starts = [] if data.startswith(_WIDE) or _DIRECTIVE.search(data) else [match.start() for match in _START.finditer(data)]
    lines = 0
    for begin, end in zip([0, *starts], [*starts, len(data)], strict=True):
        if begin < end:
            text = data[begin:end]
            yield Chunk(text, lines)
            lines += len(_BREAK.findall(text))
