"""Removes private keys, tokens and passwords from strings."""

from __future__ import annotations

import re

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
# Base64 of "-----BEGIN", which is PEM in a Secret. Keys and certificates look alike there, so both are removed.
_PEM = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{8,}={0,2}")
_TOKEN = re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_AUTHORIZATION = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/-]{6,}=*")
_PASSWORD = re.compile(r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+@")
_NOTES = (
    (_PRIVATE_KEY, "[private key left out]"),
    (_PEM, "[PEM left out]"),
    (_TOKEN, "[token left out]"),
    (_AUTHORIZATION, r"\1 [token left out]"),
    (_PASSWORD, "[password left out]@"),
)


def redact(text: str) -> str:
    """Return a string in which everything that looks like a secret is replaced with a note."""
    for pattern, note in _NOTES:
        text = pattern.sub(note, text)
    return text
