"""YAML as most files have it, read line by line: mappings and lists by their indentation, each value on one line or a `|` block.

Reading it so costs a third of what libyaml's events do. Whatever is written otherwise (anchors, tags, text over several lines, tabs, keys that
are there twice, mistakes) is refused as a whole, and `documents` asks libyaml, whose word is the law: what is read here is what it would give.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pilot.ingest.lines import Inside
from pilot.ingest.scalars import key_text, resolve

_Line = tuple[str, str, str, str]
"""Indentation, dash and key with the spaces after them, and the rest."""
_KEY = r"""(?:[A-Za-z0-9_][A-Za-z0-9_./-]{0,250}|"[^"\\\n]{0,250}"|'[^'\n]{0,250}')"""
_LINE = re.compile(rf"( *)(-(?: +|$)|)({_KEY}:(?: +|$)|)(.*)\n?", re.MULTILINE)
_BEGIN = re.compile(r"--- *(?: #.*)?")
_QUOTED = r"""(?:"([^"\\]*+)"|'([^']*+)'|("""
_BARE = r"""(?:[A-Za-z0-9_./~^$(\\<;+=]|[^\x00-\x7f]|-(?=[^ ]))(?:[^ :#]++|:(?=[^ ])|(?<=[^ ])#|\ ++(?=[^ #]))*+"""
_VALUE = re.compile(_QUOTED + _BARE + r"))\ *+(?:(?<=\ )#.*)?")
"""Text in double quotes, in single quotes, or neither; a comment may follow."""
_ITEM = r"""(?:"[^"\\]*+"|'[^']*+'|[A-Za-z0-9_./][A-Za-z0-9_./-]*+)"""
_LIST = re.compile(rf"\[ *+({_ITEM}(?:, *+{_ITEM})*+)? *+\]")
_ITEMS = re.compile(_ITEM)
_ENDS = {"|": "\n", "|-": ""}
"""How a block of text ends, by how it begins."""
_DEEPEST = 60
_AT_ONCE = 1 << 16
"""Characters that are taken apart in one call, during which no other thread has its turn."""
_REMEMBERED = 5_000


class NotSimple(Exception):
    """The text is not written in this simple way."""


class _Keys(dict[str, str]):
    """The keys that a file has again and again, by how they are written, with the colon."""

    def __missing__(self, written: str) -> str:
        bare = written.rstrip(" ")[:-1]
        name = bare[1:-1] if bare[0] in "\"'" else key_text(resolve(bare))
        if len(self) < _REMEMBERED:
            self[written] = name
        return name


class _Values(dict[str, Any]):
    """What stands behind keys and dashes again and again, by how it is written. Mappings and lists are made anew: whoever has one may change it."""

    def __init__(self, complex_value: Callable[[str], Any]) -> None:
        super().__init__({"": None})
        self._complex_value = complex_value
        self._lists: dict[str, list[Any]] = {}

    def __missing__(self, written: str) -> Any:
        if (found := _VALUE.fullmatch(written)) is None:
            return self._other(written)
        double, single, bare = found.groups()
        value = resolve(bare) if bare is not None else single if double is None else double
        if len(self) < _REMEMBERED:
            self[written] = value
        return value

    def _other(self, text: str) -> Any:
        if text in self._lists:
            return self._lists[text].copy()
        if text == "{}":
            return {}
        if text[0] == "\n":
            return text[1:]
        if found := _LIST.fullmatch(text):
            items = [self[item] for item in _ITEMS.findall(found[1] or "")]
            if len(self._lists) < _REMEMBERED:
                self._lists[text] = items
            return items.copy()
        value = self._complex_value(text) if text[0] in "[{\"'" else None
        if not isinstance(value, str if text[0] in "\"'" else dict | list):
            raise NotSimple
        return value


class Words:
    """The keys and values that a file has again and again."""

    def __init__(self, complex_value: Callable[[str], Any]) -> None:
        self.keys = _Keys()
        self.values = _Values(complex_value)


def _lines(text: str, number: int) -> Iterator[tuple[int, _Line]]:
    """Yields the lines with their numbers, a block of text as the rest of its first line, behind a line break. `number` is of the line before.
    Raises NotSimple."""
    begin = 0
    block: _TextBlock | None = None
    while begin < len(text):
        end = text.find("\n", begin + _AT_ONCE) + 1 or len(text)
        part = text[begin:end]
        if not part.replace("\n", "").isprintable():  # tabs, other line breaks, a byte order mark, what is no text
            raise NotSimple
        found = _LINE.findall(part)
        found.pop()  # nothing, at the very end
        for line in found:
            number += 1
            if block is not None:
                if block.takes(line):
                    continue
                yield block.number, block.line()
                block = None
            if line[3] in _ENDS and (line[1] or line[2]):
                block = _TextBlock(number, line)
            else:
                yield number, line
        begin = end
    if block is not None:
        yield block.number, block.line(text.endswith("\n"))


class _TextBlock:
    """Text that begins with `|` behind a dash or a key, on the lines below it."""

    def __init__(self, number: int, head: _Line) -> None:
        self.number, self._head = number, head
        self._outside = len(head[0]) + (len(head[1]) if head[2] else 0)
        self._indent = 0
        self._rows: list[str] = []

    def takes(self, line: _Line) -> bool:
        """Adds a line; returns False for the first that is not of the text."""
        indent = len(line[0])
        blank = not (line[1] or line[2] or line[3])
        if not self._indent:
            if blank and indent:
                raise NotSimple
            if not blank and indent <= self._outside:
                return False
            self._indent = indent
        elif not blank and indent < self._indent:
            return False
        self._rows.append("".join(line)[self._indent :])
        return True

    def line(self, broken: bool = True) -> _Line:
        """Returns the line that it began on with the text as its rest. `broken`: its last line has an end."""
        indent, dash, key, rest = self._head
        rows = self._rows
        broken = broken or (bool(rows) and not rows[-1])
        while rows and not rows[-1]:
            rows.pop()
        return indent, dash, key, "\n" + "\n".join(rows) + (_ENDS[rest] if rows and broken else "")


class _Nesting:
    """The mapping or list that the last line was of (`top`), the lines of what is in it, the column that they begin at, and those around it."""

    __slots__ = ("_around", "column", "lines", "top")

    def __init__(self) -> None:
        self._around: list[tuple[int, Any, Any]] = []
        self.column = -1
        self.top: Any = None
        self.lines: Any = None

    def open(self, column: int, made: Any, lines: Any) -> None:
        self._around.append((self.column, self.top, self.lines))
        if len(self._around) > _DEEPEST:
            raise NotSimple
        self.column, self.top, self.lines = column, made, lines

    def close(self, column: int, is_item: bool) -> None:
        """Goes back to what has lines at a column. Raises NotSimple where nothing has."""
        while self.column > column or (self.column == column and not is_item and type(self.top) is list):
            self.column, self.top, self.lines = self._around.pop()
        if self.column != column or (type(self.top) is list) is not is_item:
            raise NotSimple


class Block(NamedTuple):
    """What a text of one document holds, the line that it begins at, and the lines inside; None and 0 where it holds nothing."""

    plain: Any
    line: int
    inside: Inside


def read_block(data: bytes, words: Words, before: int = 0) -> Block:
    """Returns what a text of one document holds; so many lines are before it in its file. Raises NotSimple."""
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        raise NotSimple from fault
    keys, values = words.keys, words.values
    nesting = _Nesting()
    root: Any = None
    root_lines: Any = None
    made: Any
    inside: Any
    start = waits_since = 0
    waiting: str | None = None  # the key whose value is on the lines below
    for number, (indent, dash, written, rest) in _lines(text, before):
        if not (dash or written):
            if not rest or rest[0] == "#" or (number == before + 1 and not indent and _BEGIN.fullmatch(rest)):
                continue
            raise NotSimple
        column = len(indent)
        if waiting is not None and (column > nesting.column or (column == nesting.column and dash)):
            made, inside = ([], []) if dash else ({}, {})
            nesting.top[waiting] = made
            nesting.lines[waiting] = waits_since, inside
            nesting.open(column, made, inside)
        elif not start:
            if column:
                raise NotSimple
            root, root_lines = ([], []) if dash else ({}, {})
            start = number
            nesting.open(0, root, root_lines)
        elif column != nesting.column or (type(nesting.top) is list) is not bool(dash):
            nesting.close(column, bool(dash))
        waiting = None
        top, lines = nesting.top, nesting.lines
        if dash:
            if not written:
                if not rest or rest[0] == "#":
                    raise NotSimple
                top.append(values[rest])
                lines.append(number)
                continue
            made, inside = {}, {}
            top.append(made)
            lines.append((number, inside))
            nesting.open(column + len(dash), made, inside)
            top, lines = made, inside
        key = keys[written]
        if key in top:
            raise NotSimple
        lines[key] = number
        if rest and rest[0] != "#":
            top[key] = values[rest]
        else:
            top[key] = None
            waiting, waits_since = key, number
    return Block(root, start, root_lines)
