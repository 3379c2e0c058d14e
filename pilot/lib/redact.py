"""Removes private keys, tokens and passwords from strings."""

from __future__ import annotations

import re

_PATTERNS = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        "[private key left out]",
    ),
    # Base64 of "-----BEGIN", which is PEM in a Secret. Keys and certificates look alike there, so both are removed.
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{8,}={0,2}"), "[PEM left out]"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), "[token left out]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/-]{6,}=*"), r"\1 [token left out]"),
    (re.compile(r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+@"), "[password left out]@"),
)


def redact(text: str) -> str:
    """Return a string in which everything that looks like a secret is replaced with a note."""
    for pattern, note in _PATTERNS:
        text = pattern.sub(note, text)
    return text
