"""Key sets and requirements of the JWT authentication filter."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2
from google.protobuf import json_format

from pilot.config.security.request_authentication import JWTRule
from pilot.envoy.http_filter.jwt_authn import UNUSABLE_KEYS, build_jwt_authn
from pilot.lib.tokens.envoy_jwks import has_keys
from pilot.mesh.security.jwt import TokenRule

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


@pytest.mark.parametrize(
    ("presences", "requirement"),
    [
        (("OPTIONAL",), {"requiresAny": {"requirements": [{"providerName": "origins-0"}, {"allowMissing": {}}]}}),
        (("REQUIRED",), {"providerName": "origins-0"}),
        (("OPTIONAL", "REQUIRED"), {"providerName": "origins-1"}),
        (
            ("REQUIRED", "REQUIRED"),
            {"requiresAll": {"requirements": [{"providerName": "origins-0"}, {"providerName": "origins-1"}]}},
        ),
    ],
)
def test_required_tokens(presences: tuple[Literal["OPTIONAL", "REQUIRED"], ...], requirement: object) -> None:
    rules = tuple(TokenRule(JWTRule(issuer=f"i{n}", presence=presence)) for n, presence in enumerate(presences))
    config = config_pb2.JwtAuthentication()
    build_jwt_authn(rules).typed_config.Unpack(config)
    assert json_format.MessageToDict(config.rules[0].requires) == requirement
