"""Redaction of secrets in text."""

from __future__ import annotations

import base64

import pytest

from pilot.lib.redact import redact

# pragma: allowlist nextline secret
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"a {PEM} b", "MHcC"),
        (PEM.replace("\n", "\\n"), "MHcC"),
        # pragma: allowlist nextline secret
        ("-----BEGIN PRIVATE KEY-----\nMHcC and no end", "MHcC"),
        (f'"tls.key": "{base64.b64encode(PEM.encode()).decode()}"', base64.b64encode(PEM.encode()).decode()[20:]),
        # pragma: allowlist nextline secret
        ("token: eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "eyJzdWI"),
        ("Authorization: Bearer s3cr3t-token", "s3cr3t"),
        # pragma: allowlist nextline secret
        ("https://user:pa55word@host/x", "pa55word"),
    ],
)
def test_secrets_are_redacted(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "left out" in redact(text)


@pytest.mark.parametrize(
    "text",
    ["https://host:8080/x@y", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "a bearer of news"],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert redact(text) == text
