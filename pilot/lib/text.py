"""Text that others wrote, made safe to show: on one line, without characters that command a terminal, no longer than is of use."""

from __future__ import annotations

import re

# Controls (C0, DEL, C1), separators of lines, changes of writing direction, and halves of characters that are no text at all
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def one_line(text: str) -> str:
    r"""Returns the text with whatever could begin another line, or change how this one looks, as escapes such as \n or \x1b."""
    return _UNSAFE.sub(_escape, text)


_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def cut(text: str, length: int) -> str:
    """Returns the text, or its beginning and how much was left out, where it is longer than `length` characters."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        number -= 0xDC00  # a byte of a file name that is no UTF-8, as Python keeps it
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def human_size(size: int) -> str:
    """Returns a number of bytes as 334B, 33.2kB, 1.4MB."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f}{name}"
    return f"{size}B"
