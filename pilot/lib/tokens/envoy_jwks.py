"""Checks JSON Web Key Sets as Envoy does.

Envoy rejects a whole listener if a key set has no key that it supports.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

LARGEST_INLINE = 256 * 1024
"""Maximum size of a key set in an object, in bytes. Large providers publish 20 kB."""
MOST_KEYS = 256
"""Maximum number of keys in a key set."""
_NUMBERS = {
    "RSA": ("n", "e"),
    "EC": ("x", "y"),
    "OKP": ("x",),
    "oct": ("k",),
}  # https://www.rfc-editor.org/rfc/rfc7518#section-6


def has_keys(text: str) -> bool:
    """Return whether a string is a key set that contains at least one complete key of a known type.

    A key set with more than `MOST_KEYS` keys is not accepted.
    """
    try:
        key_set = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # RecursionError: many thousand nested brackets
        return False
    keys = key_set.get("keys") if isinstance(key_set, dict) else None
    return isinstance(keys, list) and len(keys) <= MOST_KEYS and any(_is_complete(key) for key in keys)


def _is_complete(key: Any) -> bool:
    numbers = _NUMBERS.get(str(key.get("kty"))) if isinstance(key, dict) else None
    return numbers is not None and all(_is_number(key.get(name)) for name in numbers)


def _is_number(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        )
    except ValueError:
        return False
