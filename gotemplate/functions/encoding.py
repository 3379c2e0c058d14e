"""Sprig's functions for JSON, base64, base32 and checksums. https://masterminds.github.io/sprig/encoding.html"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

from gotemplate import go_json
from gotemplate.function import Function, takes


def _quiet(convert: Callable[[Any], Any], otherwise: Any) -> Callable[[Any], Any]:
    """Return a function that converts a value, and returns `otherwise` if the conversion fails."""

    def call(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError:
            return otherwise

    return call


def _pretty(value: Any) -> str:
    return go_json.dumps(value, indent=2)


def _raw(value: Any) -> str:
    return go_json.dumps(value, escape_html=False)


def _decoder(name: str, decode: Callable[[bytes], bytes]) -> Callable[[str], str]:
    """Return a function that decodes a string. As in Sprig, it returns Go's error message for an invalid string."""

    def call(text: str) -> str:
        try:
            return decode(text.replace("\r", "").replace("\n", "").encode()).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return f"illegal {name} data at input byte {_first_wrong(text, name)}"

    return call


def _first_wrong(text: str, name: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + (
        "abcdefghijklmnopqrstuvwxyz0123456789+/" if name == "base64" else "234567"
    )
    body = text.rstrip("=")
    offset = next((index for index, c in enumerate(body) if c not in alphabet), -1)
    return offset if offset >= 0 else len(text) - len(text) % (4 if name == "base64" else 8)


ENCODING: dict[str, Function] = {
    "toJson": takes("any", _quiet(go_json.dumps, "")),
    "mustToJson": takes("any", go_json.dumps),
    "toPrettyJson": takes("any", _quiet(_pretty, "")),
    "mustToPrettyJson": takes("any", _pretty),
    "toRawJson": takes("any", _raw),
    "mustToRawJson": takes("any", _raw),
    "fromJson": takes("string", _quiet(go_json.loads, None)),
    "mustFromJson": takes("string", go_json.loads),
    "b64enc": takes("string", lambda text: base64.b64encode(text.encode()).decode()),
    "b64dec": takes("string", _decoder("base64", lambda data: base64.b64decode(data, validate=True))),
    "b32enc": takes("string", lambda text: base64.b32encode(text.encode()).decode()),
    "b32dec": takes("string", _decoder("base32", base64.b32decode)),
    "sha1sum": takes("string", lambda text: hashlib.sha1(text.encode()).hexdigest()),
    "sha256sum": takes("string", lambda text: hashlib.sha256(text.encode()).hexdigest()),
    "sha512sum": takes("string", lambda text: hashlib.sha512(text.encode()).hexdigest()),
    "adler32sum": takes("string", lambda text: str(zlib.adler32(text.encode()))),
}
