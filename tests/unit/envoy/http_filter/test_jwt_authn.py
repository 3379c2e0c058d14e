"""Key sets for the JWT authentication filter."""

from __future__ import annotations

import json

import pytest

from pilot.envoy.http_filter.jwt_authn import UNUSABLE_KEYS
from pilot.lib.tokens.envoy_jwks import has_keys

RSA = {"kty": "RSA", "n": "AQAB", "e": "AQAB"}


@pytest.mark.parametrize(
    ("keys", "usable"),
    [
        ([RSA], True),
        ([{"kty": "EC", "x": "AQ", "y": "Ag"}], True),
        ([{"kty": "new"}, RSA], True),
        ([], False),
        ([{"kty": "RSA", "n": "AQAB"}], False),
        ([{"kty": "RSA", "n": "!!", "e": "AQAB"}], False),
        (["text"], False),
    ],
)
def test_key_sets_with_usable_keys(keys: list[object], usable: bool) -> None:
    assert has_keys(json.dumps({"keys": keys})) is usable


@pytest.mark.parametrize("text", ["[" * 100_000, '{"keys": ' + "[" * 100_000, "", "{}", "[]", "{", json.dumps(RSA)])
def test_invalid_key_sets(text: str) -> None:
    assert not has_keys(text)


def test_placeholder_keys_are_usable() -> None:
    assert has_keys(UNUSABLE_KEYS)
