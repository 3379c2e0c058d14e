"""YAML as most files have it, read line by line: mappings and lists by their indentation, each value on one line or a `|` block.

Reading it so costs a third of what libyaml's events do. Whatever is written otherwise (anchors, tags, text over several lines, tabs, keys that
are there twice, mistakes) is refused as a whole, and `documents` asks libyaml, whose word is the law: what is read here is what it would give.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

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


class Words:
    """The values and keys that a file has again and again, by how they are written."""

    def __init__(self, complex_value: Callable[[str], Any]) -> None:
        self._complex_value = complex_value
        self._values: dict[str, Any] = {"": None}
        self._keys: dict[str, str] = {}

    def value(self, text: str, _: int) -> Any:
        """Returns what stands behind a key or a dash."""
        try:
            return self._values[text]
        except KeyError:
            pass
        if (found := _VALUE.fullmatch(text)) is None:
            return self._other(text)
        double, single, bare = found.groups()
        value = resolve(bare) if bare is not None else single if double is None else double
        if len(self._values) < _REMEMBERED:
            self._values[text] = value
        return value

    def _other(self, text: str) -> Any:
        if text == "{}":
            return {}
        if text[0] == "\n":
            return text[1:]
        if found := _LIST.fullmatch(text):
            return [self.value(item, 0) for item in _ITEMS.findall(found[1] or "")]
        value = self._complex_value(text) if text[0] in "[{\"'" else None
        if not isinstance(value, str if text[0] in "\"'" else dict | list):
            raise NotSimple
        return value

    def key(self, text: str) -> str:
        """Returns what stands before a colon, which is with it."""
        try:
            return self._keys[text]
        except KeyError:
            pass
        bare = written_key(text)
        name = bare if text[0] in "\"'" else key_text(resolve(bare))
        if len(self._keys) < _REMEMBERED:
            self._keys[text] = name
        return name

    @staticmethod
    def inside(made: Any, _: int) -> Any:
        return made


def written_key(text: str) -> str:
    """Returns a key as it is written, without its quotes and the colon."""
    text = text.rstrip(" ")[:-1]
    return text[1:-1] if text[0] in "\"'" else text


class Places:
    """The lines of values instead of the values, each with what is inside of it."""

    @staticmethod
    def key(text: str) -> str:
        return written_key(text)

    @staticmethod
    def value(_: str, line: int) -> Any:
        return line, None

    @staticmethod
    def inside(made: Any, line: int) -> Any:
        return line, made


def _lines(text: str) -> Iterator[tuple[int, _Line]]:
    """Yields the lines with their numbers, a block of text as the rest of its first line, behind a line break. Raises NotSimple."""
    number = begin = 0
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
    """The mapping or list that the last line was of (`top`), the column that its lines begin at, and those around it."""

    __slots__ = ("_around", "column", "top")

    def __init__(self) -> None:
        self._around: list[tuple[int, Any]] = []
        self.column = -1
        self.top: Any = None

    def open(self, column: int, made: Any) -> None:
        self._around.append((self.column, self.top))
        if len(self._around) > _DEEPEST:
            raise NotSimple
        self.column, self.top = column, made

    def close(self, column: int, is_item: bool) -> None:
        """Goes back to what has lines at a column. Raises NotSimple where nothing has."""
        while self.column > column or (self.column == column and not is_item and type(self.top) is list):
            self.column, self.top = self._around.pop()
        if self.column != column or (type(self.top) is list) is not is_item:
            raise NotSimple


def read_block(data: bytes, into: Words | Places) -> tuple[Any, int]:
    """Returns what a text of one document holds, made of what `into` makes of its values, and the line that it begins at, from 1; None and 0
    where it holds nothing. Raises NotSimple."""
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        raise NotSimple from fault
    nesting = _Nesting()
    root: Any = None
    start = waits_since = 0
    waiting: str | None = None  # the key whose value is on the lines below
    for number, (indent, dash, key, rest) in _lines(text):
        if not (dash or key):
            if not rest or rest[0] == "#" or (number == 1 and not indent and _BEGIN.fullmatch(rest)):
                continue
            raise NotSimple
        column, top = len(indent), nesting.top
        if waiting is not None and (column > nesting.column or (column == nesting.column and dash)):
            made: Any = [] if dash else {}
            top[waiting] = into.inside(made, waits_since)
            nesting.open(column, made)
        elif top is None:
            if column:
                raise NotSimple
            root, start = [] if dash else {}, number
            nesting.open(0, root)
        elif column != nesting.column or (type(top) is list) is not bool(dash):
            nesting.close(column, bool(dash))
        waiting, top = None, nesting.top
        if dash:
            if not key:
                if not rest or rest[0] == "#":
                    raise NotSimple
                top.append(into.value(rest, number))
                continue
            item: dict[str, Any] = {}
            top.append(into.inside(item, number))
            nesting.open(column + len(dash), item)
            top = item
        name = into.key(key)
        if name in top:
            raise NotSimple
        if rest and rest[0] != "#":
            top[name] = into.value(rest, number)
        else:
            top[name] = into.value("", number)
            waiting, waits_since = name, number
    return root, start
