"""Sprig's string functions. https://masterminds.github.io/sprig/strings.html"""

from __future__ import annotations

import random
import secrets
import string
from typing import Any

from gotemplate.function import Function, takes
from gotemplate.printing import to_text
from gotemplate.quoting import quoted
from gotemplate.values import StringList, StringMap

_LETTERS = string.ascii_letters
_PRINTED = "".join(chr(code) for code in range(32, 127))


def quote(*values: Any) -> str:
    """Return the values in double quotes. Nil values are omitted."""
    if len(values) == 1 and type(values[0]) is str:
        return quoted(values[0])
    return " ".join(quoted(to_text(v)) for v in values if v is not None)


def single_quote(*values: Any) -> str:
    """Return the values in single quotes. Nil values are omitted."""
    return " ".join(f"'{to_text(v)}'" for v in values if v is not None)


def truncate(count: int, text: str) -> str:
    """Return the first `count` bytes. If `count` is negative, return the last -`count` bytes."""
    data = text.encode()
    return (data[count:] if count < 0 else data[:count]).decode("utf-8", "replace")


def indent(spaces: int, text: str) -> str:
    """Return the text with spaces before every line."""
    pad = " " * _not_negative(spaces)
    return pad + text.replace("\n", "\n" + pad)


def _not_negative(count: int) -> int:
    if count < 0:
        raise ValueError("strings: negative Repeat count")
    return count


def substring(start: int, end: int, text: str) -> str:
    """Return the bytes from `start` up to `end`. If `end` is negative or too large, return all bytes from `start`."""
    data = text.encode()
    if start < 0:
        return _cut(data, 0, end).decode("utf-8", "replace")
    return _cut(data, start, end if 0 <= end <= len(data) else len(data)).decode("utf-8", "replace")


def _cut(data: bytes, start: int, end: int) -> bytes:
    if end < 0:
        raise ValueError(f"runtime error: slice bounds out of range [:{end}]")
    if end > len(data):
        raise ValueError(f"runtime error: slice bounds out of range [:{end}] with length {len(data)}")
    if start > end:
        raise ValueError(f"runtime error: slice bounds out of range [{start}:{end}]")
    return data[start:end]


def strings_of(value: Any) -> StringList:
    """Return the items of a list as strings, without nil items. Any other value is treated as a list with one item."""
    if isinstance(value, list):
        return StringList(to_text(item) for item in value if item is not None)
    return StringList() if value is None else StringList([to_text(value)])


def cat(*values: Any) -> str:
    """Return the values joined with spaces. Nil values are omitted."""
    return " ".join(to_text(v) for v in values if v is not None)


def title(text: str) -> str:
    """Capitalize each word. Words consist of letters, digits and _."""
    return "".join(
        c.upper() if not index or not (text[index - 1].isalnum() or text[index - 1] == "_") else c
        for index, c in enumerate(text)
    )


def abbreviate(width: int, text: str) -> str:
    """Shorten the text to at most `width` characters. A shortened text ends with an ellipsis."""
    return abbreviate_both(0, width, text) if width >= 4 else text


def abbreviate_both(left: int, right: int, text: str) -> str:
    """Shorten the text to at most `right` characters from the offset `left`, with ellipses at the shortened ends."""
    if right < 4 or (left > 0 and right < 7) or len(text) <= right:
        return text
    left = min(left, len(text) - (right - 3))
    if left <= 4:
        return text[: right - 3] + "..."
    return "..." + abbreviate(right - 3, text[left:])


def initials(text: str) -> str:
    """Return the first letter of each word."""
    return "".join(word[0] for word in text.split())


def swap_case(text: str) -> str:
    """Swap the case of all letters."""
    return "".join(c.lower() if c.isupper() or c.istitle() else c.upper() for c in text)


def wrap(width: int, text: str, separator: str = "\n", breaks: bool = False) -> str:
    """Wrap the text at `width` characters. Words that are longer are split only if `breaks` is set."""
    width, lines, offset = max(width, 1), [], 0
    while len(text) - offset > width:
        if text[offset] == " ":
            offset += 1
            continue
        space = text.rfind(" ", offset, offset + width + 1)
        if space != -1:
            lines.append(text[offset:space])
            offset = space + 1
        elif breaks:
            lines.append(text[offset : offset + width])
            offset += width
        else:
            space = text.find(" ", offset + width)
            if space == -1:
                break
            lines.append(text[offset:space])
            offset = space + 1
    return (separator or "\n").join([*lines, text[offset:]])


def split(separator: str, text: str, count: int = -1) -> StringMap:
    """Return the parts of a split text as a map with the keys _0, _1, …"""
    return StringMap((f"_{i}", part) for i, part in enumerate(split_list(separator, text, count)))


def split_list(separator: str, text: str, count: int = -1) -> StringList:
    """Split a string into at most `count` parts. If `count` is negative, there is no limit."""
    if count == 0:
        return StringList()
    cuts = max(count, 0) - 1
    if not separator:
        head = text if cuts == -1 else text[:cuts]
        return StringList(filter(None, [*head, text[len(head) :]]))
    return StringList(text.split(separator, cuts))


def _shuffle(text: str) -> str:
    return "".join(random.sample(text, len(text)))


def _random(alphabet: str) -> Function:
    return takes("int", lambda count: "".join(secrets.choice(alphabet) for _ in range(count)))


def _untitle(text: str) -> str:
    """Convert the first letter of each word to lower case."""
    return "".join(c.lower() if not index or text[index - 1].isspace() else c for index, c in enumerate(text))


def _trim_suffix(suffix: str, text: str) -> str:
    return text.removesuffix(suffix)


TEXT: dict[str, Function] = {
    "hello": takes("", lambda: "Hello!"),
    "quote": takes("...any", quote),
    "squote": takes("...any", single_quote),
    "trunc": takes("int string", truncate),
    "indent": takes("int string", indent),
    "nindent": takes("int string", lambda spaces, text: "\n" + indent(spaces, text)),
    "substr": takes("int int string", substring),
    "toStrings": takes("any", strings_of),
    "join": takes("string any", lambda separator, values: separator.join(strings_of(values))),
    "toString": takes("any", to_text),
    "cat": takes("...any", cat),
    "trim": takes("string", str.strip),
    "trimAll": takes("string string", lambda cutset, text: text.strip(cutset) if cutset else text),
    "trimall": takes("string string", lambda cutset, text: text.strip(cutset) if cutset else text),
    "trimSuffix": takes("string string", _trim_suffix),
    "trimPrefix": takes("string string", lambda prefix, text: text.removeprefix(prefix)),
    "upper": takes("string", str.upper),
    "lower": takes("string", str.lower),
    "title": takes("string", title),
    "untitle": takes("string", _untitle),
    "repeat": takes("int string", lambda count, text: text * _not_negative(count)),
    "nospace": takes("string", lambda text: "".join(text.split())),
    "initials": takes("string", initials),
    "swapcase": takes("string", swap_case),
    "shuffle": takes("string", _shuffle),
    "abbrev": takes("int string", abbreviate),
    "abbrevboth": takes("int int string", abbreviate_both),
    "wrap": takes("int string", wrap),
    "wrapWith": takes("int string string", lambda width, separator, text: wrap(width, text, separator, breaks=True)),
    "contains": takes("string string", lambda part, text: part in text),
    "hasPrefix": takes("string string", lambda prefix, text: text.startswith(prefix)),
    "hasSuffix": takes("string string", lambda suffix, text: text.endswith(suffix)),
    "replace": takes("string string string", lambda old, new, text: text.replace(old, new)),
    "plural": takes("string string int", lambda one, many, count: one if count == 1 else many),
    "split": takes("string string", split),
    "splitn": takes("string int string", lambda separator, count, text: split(separator, text, count)),
    "splitList": takes("string string", split_list),
    "randAlphaNum": _random(_LETTERS + string.digits),
    "randAlpha": _random(_LETTERS),
    "randNumeric": _random(string.digits),
    "randAscii": _random(_PRINTED),
}
