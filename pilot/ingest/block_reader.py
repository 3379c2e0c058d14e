"""The documents of one file: one that is laid out like others is read as those were, for it differs in values alone."""
from __future__ import annotations

import re
from typing import NamedTuple

from pilot.ingest.block_yaml import KEY, Block, Words, decoded, read_block
from pilot.ingest.form import Form
from pilot.ingest.lines import Inside

_LINE = re.compile(rf"( *(?:(?:- +)?{KEY}:(?: +(?=[^ \n#])| *(?:#.*)?$)|- +(?=[^ \n#]))|.*)(.*)\n?", re.MULTILINE)
"""What comes before the value of a line, and that; a line without a value, or with something else, is as a whole before it."""
_VALUE = r"([^ \n#].*+)"
_LONGEST = 1 << 13  # bytes of a document that is compared with others
_MOST = 50  # layouts that are remembered
_TRIED = 100  # documents after which it shows whether they are alike


class _Layout(NamedTuple):
    """How documents are put together, and of what text; the line that each of them begins at and the lines inside, as in `Block`."""

    text: re.Pattern[str]
    form: Form
    line: int
    inside: Inside


class BlockReader:
    """Reads the documents of one file, and remembers their words and layouts."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._layouts: dict[int, list[_Layout]] = {}  # by the number of lines
        self._met: set[tuple[str, ...]] = set()  # what came before the values of a document
        self.alike = self._unlike = 0  # documents that were like others that are known, and others

    def read(self, data: bytes) -> Block:
        """Returns what `read_block` does. Raises NotSimple."""
        if len(data) > _LONGEST or b"|" in data or b">" in data:
            return read_block(data, self._words)
        for layout in self._layouts.get(data.count(b"\n"), ()):
            found = layout.text.fullmatch(decoded(data))
            if found is not None:
                self.alike += 1
                known = self._words.values
                return Block(layout.form.fill([known[value] for value in found.groups()]), layout.line, layout.inside)
        block = read_block(data, self._words)
        self._unlike += 1
        if block.line and (self._unlike < _TRIED or self._unlike < self.alike) and len(self._met) < _MOST:
            self._note(decoded(data))
        return block

    def _note(self, text: str) -> None:
        """Takes note of a document that was read, and learns its layout if it is not the first of that."""
        lines = _LINE.findall(text)[:-1]  # the last one is nothing, at the very end
        before = tuple(head for head, _ in lines)
        if before not in self._met:
            self._met.add(before)
            return
        self._met.remove(before)
        pattern, sample, count = [], [], 0
        for head, value in lines:
            pattern.append(re.escape(head) + (_VALUE if value else ""))
            sample.append(head + (str(count) if value else ""))
            count += bool(value)
        plain, line, inside = read_block("\n".join(sample).encode(), self._words)
        layout = _Layout(re.compile("\n".join(pattern) + "\n?"), Form(plain, count), line, inside)
        self._layouts.setdefault(text.count("\n"), []).append(layout)
