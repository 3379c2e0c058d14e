"""Validation of inline JWKS."""

from __future__ import annotations

import pytest

from pilot.ingest.decode import decode_document
from testing.mesh.objects import make


@pytest.mark.parametrize("text", ["[" * 100_000, '{"keys":' + "[" * 100_000])
def test_istio_security_2026_006_deeply_nested_jwks_is_reported(text: str) -> None:
    plain = make("RequestAuthentication", "r") | {"spec": {"jwtRules": [{"issuer": "i", "jwks": text}]}}
    assert [(p.code, p.path) for p in decode_document(plain).problems] == [("bad-jwks", "spec.jwtRules[0].jwks")]
