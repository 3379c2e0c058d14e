"""Decodes JSON that is nested more deeply than the decoder supports.

API servers accept up to 10,000 levels of nesting in fields that may have arbitrary content. One such object must not
prevent the other objects in a list or watch from being read.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
DEEPEST = 100
"""Number of levels that are kept if the text is nested too deeply. The fields that Kubernetes and Istio define have far
fewer."""
REPLACEMENT = b'"%s"' % secrets.token_hex(16).encode()
"""Value that replaces a part that is nested too deeply. It is random, so that no object contains it by chance."""
AT_ONCE = 10_000
"""Number of brackets to scan before other tasks run. This takes a few milliseconds."""
_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:"(?:[^"\\]|\\.)*+"[^"\[\]{}]*+)*+([\[\]{}])')


async def decode_any_depth(decode: Callable[[bytes], T], text: bytes) -> T:
    """Return the result of a decoder. If the text is nested too deeply, parts of it are replaced first."""
    try:
        return decode(text)
    except RecursionError:
        return decode(await replace_deep_parts(text))


async def replace_deep_parts(text: bytes) -> bytes:
    """Return valid JSON in which each part that is nested deeper than `DEEPEST` levels is replaced."""
    parts = list[bytes]()
    begin = level = 0
    for count, match in enumerate(_BRACKET.finditer(text), 1):
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)
        if match[1] in b"[{":
            if level == DEEPEST:
                parts += (text[begin : match.start(1)], REPLACEMENT)
            level += 1
        else:
            level -= 1
            if level == DEEPEST:
                begin = match.end()
    return b"".join((*parts, text[begin:]))
