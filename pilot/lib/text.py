"""Makes untrusted strings safe to display: on one line, without terminal control characters, and of limited length."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line separators, changes of writing direction, and lone surrogates
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def one_line(text: str) -> str:
    r"""Return a string in which line breaks and control characters are replaced with escapes such as \n or \x1b."""
    return _UNSAFE.sub(_escape, text)


def join_lines(text: str) -> str:
    """Return the lines of a message as one line, without the marks of lists."""
    lines = filter(None, (line.strip(" \t*") for line in text.splitlines()))
    joined = ""
    for line in lines:
        joined += line if not joined else f" {line}" if joined[-1] in ":;," else f"; {line}"
    return one_line(joined)


_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def cut(text: str, length: int) -> str:
    """Return a string truncated to `length` characters, with a note of how many characters were removed."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def explain_yaml(error: Exception) -> str:
    """Return the line and the problem of an error of the YAML parser, on one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = f"line {mark.line + 1}: " if mark is not None else ""
    return place + one_line(problem or str(error))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        number -= 0xDC00  # a byte of a file name that is not UTF-8, as Python represents it
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def human_size(size: int) -> str:
    """Format a number of bytes, such as 334B, 33.2kB or 1.4MB."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f}{name}"
    return f"{size}B"


def printable_path(path: str) -> str:
    """Return a path as valid UTF-8. Invalid bytes are replaced with escapes such as \\xff."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
