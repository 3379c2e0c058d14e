"""Validation of regular expressions with RE2, the engine that Envoy uses.

https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import functools

import re2

MAX_LENGTH = 1024

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@functools.lru_cache(maxsize=4096)
def find_fault(pattern: str) -> str:
    """Return why a pattern is invalid, or "" if it is valid."""
    if len(pattern) > MAX_LENGTH:
        return f"must be at most {MAX_LENGTH} characters"
    try:
        re2.compile(pattern, options=_OPTIONS)
    except UnicodeError:
        return "it contains characters that UTF-8 cannot encode"
    except re2.error as reason:
        text = reason.args[0] if reason.args else reason
        return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return ""
