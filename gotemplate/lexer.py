"""Splits a template into literal text and the tokens of its actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gotemplate.errors import TemplateError

_SPACE = " \t\r\n"
_COMMENT = re.compile(r"\{\{(?:-[ \t\r\n])?/\*")
_CLOSE = re.compile(r"[ \t\r\n]*([ \t\r\n]-)?\}\}")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<raw>`[^`]*`)
    |(?P<char>'(?:[^'\\\n]|\\.)+')
    |(?P<declare>:=)
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]+)?|0[bB][01_]+|0[oO][0-7_]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?))(?![\w.])
    |(?P<variable>\$\w*)
    |(?P<field>\.[^\W\d]\w*)
    |(?P<dot>\.(?!\w))
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>[|(),=])""",
    re.VERBOSE,
)
_OPENED = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
}


class Token(NamedTuple):
    """A token. `kind` is text, open, close or the name of a group in `_TOKEN`. `position` is an offset."""

    kind: str
    text: str
    position: int


def fault(name: str, text: str, position: int, message: str) -> TemplateError:
    """Return a parse error that contains the line of a position."""
    line = text.count("\n", 0, position) + 1
    return TemplateError(f"template: {name}:{line}: {message}")


def tokens(name: str, text: str) -> Iterator[Token]:
    """Yield the tokens of a template. Comments are omitted, and trim markers are applied.

    Raises TemplateError if an action is not closed or a token is not recognized.
    """
    here, trim = 0, False
    while (start := text.find("{{", here)) >= 0:
        inner, trims_left = _marker(text, start)
        if piece := _piece(text[here:start], trim, trims_left):
            yield Token("text", piece, here)
        if _COMMENT.match(text, start):
            here, trim = _comment(name, text, start)
            continue
        yield Token("open", "{{", start)
        while (closing := _CLOSE.match(text, inner)) is None:
            token = _token(name, text, inner, start)
            yield token
            inner += len(token.text)
        yield Token("close", "}}", closing.start())
        here, trim = closing.end(), closing[1] is not None
    if piece := _piece(text[here:], trim, False):
        yield Token("text", piece, here)


def _marker(text: str, start: int) -> tuple[int, bool]:
    """Return the offset of the action's content, and whether the action trims the preceding space."""
    trims = text[start + 2 : start + 3] == "-" and text[start + 3 : start + 4] in tuple(_SPACE)
    return start + (3 if trims else 2), trims


def _piece(text: str, trim_left: bool, trim_right: bool) -> str:
    text = text.lstrip(_SPACE) if trim_left else text
    return text.rstrip(_SPACE) if trim_right else text


def _comment(name: str, text: str, start: int) -> tuple[int, bool]:
    """Return the offset after a comment, and whether the comment trims the following space."""
    end = text.find("*/", start)
    if end == -1:
        raise fault(name, text, start, "unclosed comment")
    if text.startswith("}}", end + 2):
        return end + 4, False
    if text[end + 2 : end + 3] in tuple(_SPACE) and text.startswith("-}}", end + 3):
        return end + 6, True
    raise fault(name, text, start, "comment ends before closing delimiter")


def _token(name: str, text: str, here: int, start: int) -> Token:
    """Return the token at the offset `here` in the action that starts at `start`."""
    match = _TOKEN.match(text, here)
    if match is not None:
        return Token(match.lastgroup or "", match[0], here)
    if here >= len(text):
        raise fault(name, text, start, "unclosed action")
    if (character := text[here]) in _OPENED:
        raise fault(name, text, here, _OPENED[character])
    if character.isdigit() or character in "+-":
        word = re.match(r"[^\s(){}|]*", text[here:])
        raise fault(name, text, here, f'bad number syntax: "{word[0] if word else ""}"')
    raise fault(name, text, here, f"unrecognized character in action: U+{ord(character):04X} {character!r}")
