"""Validation of JWT rules and inline JWKS."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.ingest.decode import decode_document
from testing.mesh.objects import make


@pytest.mark.parametrize("text", ["[" * 100_000, '{"keys":' + "[" * 100_000])
def test_istio_security_2026_006_deeply_nested_jwks_is_reported(text: str) -> None:
    plain = make("RequestAuthentication", "r") | {"spec": {"jwtRules": [{"issuer": "i", "jwks": text}]}}
    assert [(p.code, p.path) for p in decode_document(plain).problems] == [("bad-jwks", "spec.jwtRules[0].jwks")]


def problems(*rules: dict[str, Any]) -> list[tuple[str, str]]:
    plain = make("RequestAuthentication", "r") | {"spec": {"jwtRules": list(rules)}}
    return [(problem.code, problem.path) for problem in decode_document(plain).problems]


def test_large_inline_jwks_is_one_problem() -> None:
    large = '{"keys": [' + ", ".join(["[]"] * 100_000) + "]}"
    assert problems({"issuer": "i", "jwks": large}) == [("too-long", "spec.jwtRules[0].jwks")]


def test_jwks_of_thousands_of_private_keys_is_one_problem() -> None:
    keys = json.dumps({"keys": [{"kty": "oct"}] * 10_000})
    assert problems({"issuer": "i", "jwks": keys}) == [("too-many", "spec.jwtRules[0].jwks")]


def test_thousands_of_jwt_rules_are_one_problem() -> None:
    assert problems(*({"issuer": str(n)} for n in range(256))) == []
    assert problems(*({"issuer": "", "fromParams": [""]} for n in range(257))) == [("too-many", "spec.jwtRules")]
