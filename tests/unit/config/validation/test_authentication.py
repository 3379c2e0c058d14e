"""Inline keys that are wrong in ways that a table of objects cannot show."""

from __future__ import annotations

import pytest

from pilot.ingest.decode import decode_document
from testing.mesh.objects import make


@pytest.mark.parametrize("text", ["[" * 100_000, '{"keys":' + "[" * 100_000])
def test_istio_security_2026_006_keys_that_are_nested_without_end_are_a_mistake_like_any_other(text: str) -> None:
    o = make("RequestAuthentication", "r") | {"spec": {"jwtRules": [{"issuer": "i", "jwks": text}]}}
    assert [(p.code, p.path) for p in decode_document(o).problems] == [("bad-jwks", "spec.jwtRules[0].jwks")]
