"""YAML as most files have it, read line by line: mappings and lists by their indentation, each value on one line or a `|` or `>` block.

Reading it so costs a fifth of what libyaml's events do. Whatever is written otherwise (anchors, tags, text over several lines, tabs, keys that
are there twice, mistakes) is refused as a whole, and `documents` asks libyaml, whose word is the law: what is read here is what it would give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pilot.ingest.lines import Inside
from pilot.ingest.scalars import key_text, resolve
from pilot.ingest.skeleton import Skeleton

_Line = tuple[str, str, str, str]
"""Indentation, dash and key with the spaces after them, and the rest."""
KEY = r"""(?:[A-Za-z0-9_][A-Za-z0-9_./-]{0,250}|"[^"\\\n]{0,250}"|'[^'\n]{0,250}')"""
_LINE = re.compile(rf"( *)(-(?: +|$)|)({KEY}:(?: +|$)|)(.*)\n?", re.MULTILINE)
_BEGIN = re.compile(r"--- *(?: #.*)?")
_QUOTED = r"""(?:"([^"\\]*+)"|'([^']*+)'|("""
_BARE = r"""(?:[A-Za-z0-9_./~^$(\\<;+=]|[^\x00-\x7f]|-(?=[^ ]))(?:[^ :#]++|:(?=[^ ])|(?<=[^ ])#|\ ++(?=[^ #]))*+"""
_VALUE = re.compile(_QUOTED + _BARE + r"))\ *+(?:(?<=\ )#.*)?")
"""Text in double quotes, in single quotes, or neither; a comment may follow."""
ITEM = r"""(?:"[^"\\]*+"|'[^']*+'|[A-Za-z0-9_./][A-Za-z0-9_./*-]*+)"""
_FLOW = re.compile(rf"((?: *[\[\]{{}},] *|{KEY}: ++)*+)({ITEM}|)")
"""Matches a part of a mapping or list in brackets: brackets, commas and keys, and the value behind them."""
_ENDS = {"|": "\n", "|-": "", ">": "\n", ">-": ""}
"""How a block of text ends, by how it begins."""
_BLOCK = re.compile(r"[|>]-?$", re.MULTILINE)
_FOLD = re.compile(r"(?<=[^\n])\n(\n*)(?=[^\n])")
_DEEPEST = 60
_AT_ONCE = 1 << 16
"""Characters that are taken apart in one call, during which no other thread has its turn."""
_REMEMBERED = 5_000
_SKELETONS = 500


class NotSimple(Exception):
    """The text is not written in this simple way."""


class _Keys(dict[str, str]):
    """The keys that files have again and again, by how they are written, with the colon."""

    def __missing__(self, written: str) -> str:
        bare = written.rstrip(" ")[:-1]
        name = bare[1:-1] if bare[0] in "\"'" else key_text(resolve(bare))
        if len(self) < _REMEMBERED:
            self[written] = name
        return name


class _Values(dict[str, Any]):
    """What stands behind keys and dashes again and again, by how it is written. Mappings and lists are made anew: whoever has one may change it."""

    def __init__(self, complex_value: Callable[[str], Any]) -> None:
        super().__init__()
        self._complex_value = complex_value
        self._skeletons: dict[tuple[str, ...], Skeleton | None] = {}
        self._flat: dict[str, dict[str, Any] | list[Any]] = {}

    def __missing__(self, written: str) -> Any:
        if not written.replace(
            "\n", ""
        ).isprintable():  # documents that are like others come here without `_split_lines`
            raise NotSimple
        if (found := _VALUE.fullmatch(written)) is None:
            return self._other(written)
        double, single, bare = found.groups()
        value = resolve(bare) if bare is not None else single if double is None else double
        if len(self) < _REMEMBERED:
            self[written] = value
        return value

    def _other(self, text: str) -> Any:
        if text[0] == "\n":
            return text[1:]
        if text[0] in "[{":
            return self._flow(text)
        value = self._complex_value(text) if text[0] in "\"'" else None
        if not isinstance(value, str):
            raise NotSimple
        return value

    def _flow(self, text: str) -> Any:
        """Returns a mapping or list in brackets. What libyaml makes of one is known when another comes that differs in values alone."""
        if text in self._flat:
            return self._flat[text].copy()
        heads, items = zip(*taken_apart(text), strict=True)
        if heads in self._skeletons:
            skeleton = self._skeletons[heads]
        else:
            skeleton = self._skeleton(heads)
            if len(self._skeletons) < _SKELETONS:
                self._skeletons[heads] = skeleton
        if skeleton is None or items[-1]:
            value = self._complex_value(text)
            if not isinstance(value, dict | list):
                raise NotSimple
            return value
        value = skeleton.fill([self[item] for item in items[:-1]])
        if skeleton.is_flat and len(self._flat) < _REMEMBERED:
            self._flat[text] = value.copy()
        return value

    def _skeleton(self, heads: tuple[str, ...]) -> Skeleton | None:
        """Returns the skeleton of a text with these brackets, commas and keys; None where there is more to it."""
        if "" in heads:  # a character that is none of them
            return None
        count = len(heads) - 1
        sample = self._complex_value("".join(f"{head}{number}" for number, head in enumerate(heads[:-1])) + heads[-1])
        skeleton = Skeleton(sample, count)
        return skeleton if skeleton.takes_all else None


class Words:
    """The keys and values that files have again and again."""

    def __init__(self, complex_value: Callable[[str], Any]) -> None:
        self.keys = _Keys()
        self.values = _Values(complex_value)


def taken_apart(flow: str) -> list[tuple[str, str]]:
    """Returns the parts of a mapping or list in brackets: brackets, commas and keys, each with the value behind them. The last part has no value.
    Text that is none of this is left out; the first text of some part is empty then, or the last part has a value."""
    return _FLOW.findall(flow)[:-1]  # the match of nothing at the very end is no part


def has_text_block(text: str) -> bool:
    """Returns whether a block of text may begin somewhere."""
    return _BLOCK.search(text) is not None


def decoded(data: bytes) -> str:
    """Returns a text with each end of a line as one character. Raises NotSimple where it is no text."""
    try:
        return (data.replace(b"\r\n", b"\n") if b"\r" in data else data).decode()
    except UnicodeDecodeError as fault:
        raise NotSimple from fault


def _lines(text: str) -> Iterable[tuple[int, _Line]]:
    """Returns the lines with their numbers, from 1, a block of text as the rest of its first line, behind a line break. Raises NotSimple."""
    if len(text) > _AT_ONCE or has_text_block(text):
        return _long_lines(text)
    return enumerate(_split_lines(text), 1)


def _split_lines(text: str) -> list[_Line]:
    if not text.replace("\n", "").isprintable():  # tabs, other line breaks, a byte order mark, what is no text
        raise NotSimple
    found: list[_Line] = _LINE.findall(text)
    found.pop()  # nothing, at the very end
    return found


def _long_lines(text: str) -> Iterator[tuple[int, _Line]]:
    """Yields what `_lines` returns, a part of the text at a time."""
    begin = number = 0
    block: _TextBlock | None = None
    while begin < len(text):
        end = text.find("\n", begin + _AT_ONCE) + 1 or len(text)
        for line in _split_lines(text[begin:end]):
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
    """Text that begins with `|` or `>` behind a dash or a key, on the lines below it."""

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
        """Returns the line that it began on with the text as its rest. `broken`: its last line has an end. Raises NotSimple."""
        indent, dash, key, rest = self._head
        rows = self._rows
        broken = broken or (bool(rows) and not rows[-1])
        while rows and not rows[-1]:
            rows.pop()
        text = "\n".join(rows)
        if rest[0] == ">":
            if any(row[:1] == " " for row in rows):  # such lines keep their ends
                raise NotSimple
            text = _FOLD.sub(lambda found: found[1] or " ", text)
        return indent, dash, key, "\n" + text + (_ENDS[rest] if rows and broken else "")


_Level = tuple[int, Any, Any]
"""The column that lines begin at, the mapping or list that they are of, and the places in it."""


def _enter(around: list[_Level], level: _Level) -> None:
    """Adds what the next lines are inside of. Raises NotSimple where that is too deep."""
    around.append(level)
    if len(around) >= _DEEPEST:
        raise NotSimple


def _leave(levels: list[_Level], column: int, is_item: bool) -> _Level:
    """Goes back to the level that has lines at a column, and returns it. Raises NotSimple where none has."""
    level = levels.pop()
    while levels and (level[0] > column or (level[0] == column and not is_item and type(level[1]) is list)):
        level = levels.pop()
    if level[0] != column or (type(level[1]) is list) is not is_item:
        raise NotSimple
    return level


class Block(NamedTuple):
    """What a text of one document holds, the line of the text that it begins at, from 1, and the lines inside; None and 0 where it holds nothing."""

    plain: Any
    line: int
    inside: Inside


def read_block(data: bytes, words: Words) -> Block:
    """Returns what a text of one document holds. Raises NotSimple."""
    keys, values = words.keys, words.values
    around: list[_Level] = []
    root: Any = None
    root_lines: Any = None
    at, top, lines = -1, root, root_lines
    start = waits_since = 0
    waiting: str | None = None  # the key whose value is on the lines below
    for number, (indent, dash, written, rest) in _lines(decoded(data)):
        if not (dash or written):
            if not rest or rest[0] == "#" or (number == 1 and not indent and _BEGIN.fullmatch(rest)):
                continue
            raise NotSimple
        column = len(indent)
        if waiting is not None and (column > at or (dash and column == at)):
            _enter(around, (at, top, lines))
            made: Any = [] if dash else {}
            inside: Any = [] if dash else {}
            top[waiting] = made
            lines[waiting] = waits_since, inside
            at, top, lines = column, made, inside
        elif not start:
            if column:
                raise NotSimple
            root, root_lines = ([], []) if dash else ({}, {})
            at, top, lines = 0, root, root_lines
            start = number
        elif column != at or (type(top) is list) is not (dash != ""):
            around.append((at, top, lines))
            at, top, lines = _leave(around, column, dash != "")
        waiting = None
        if dash:
            if not written:
                if not rest or rest[0] == "#":
                    raise NotSimple
                top.append(values[rest])
                lines.append(number)
                continue
            _enter(around, (at, top, lines))
            made, inside = {}, {}
            top.append(made)
            lines.append((number, inside))
            at, top, lines = column + len(dash), made, inside
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
