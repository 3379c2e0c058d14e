"""Reads JSON web key sets as Envoy does. One without a key that it understands makes it refuse the whole listener."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

_NUMBERS = {
    "RSA": ("n", "e"),
    "EC": ("x", "y"),
    "OKP": ("x",),
    "oct": ("k",),
}  # https://www.rfc-editor.org/rfc/rfc7518#section-6


def has_keys(text: str) -> bool:
    """Returns whether a text is a set with a key of a known type that has its numbers."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # the last: brackets in brackets, many thousand deep
        return False
    keys = found.get("keys") if isinstance(found, dict) else None
    return isinstance(keys, list) and any(_is_whole(key) for key in keys)


def _is_whole(key: Any) -> bool:
    numbers = _NUMBERS.get(str(key.get("kty"))) if isinstance(key, dict) else None
    return numbers is not None and all(_is_number(key.get(name)) for name in numbers)


def _is_number(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        )
    except ValueError:
        return False
