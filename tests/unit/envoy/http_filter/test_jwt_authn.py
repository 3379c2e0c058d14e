"""Key sets that Envoy would not take."""

from __future__ import annotations

import json

import pytest

from pilot.envoy.http_filter.jwt_authn import UNUSABLE_KEYS
from pilot.lib.envoy_jwks import has_keys

RSA = {"kty": "RSA", "n": "AQAB", "e": "AQAB"}


@pytest.mark.parametrize(
    ("keys", "whole"),
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
def test_sets_with_and_without_a_key(keys: list[object], whole: bool) -> None:
    assert has_keys(json.dumps({"keys": keys})) is whole


@pytest.mark.parametrize("text", ["[" * 100_000, '{"keys": ' + "[" * 100_000, "", "{}", "[]", "{", json.dumps(RSA)])
def test_what_is_no_set(text: str) -> None:
    assert not has_keys(text)


def test_nobodys_keys_are_a_set() -> None:
    assert has_keys(UNUSABLE_KEYS)
