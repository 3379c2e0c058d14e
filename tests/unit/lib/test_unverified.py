"""Checks of tokens before their signatures are verified."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pilot.lib.tokens.jwt import TokenError
from pilot.lib.tokens.unverified import check_unverified
from testing.security.tokens import base64url, claims, sign

NOW = 1000.0
HEADER = base64url(b'{"alg":"RS256"}')


@pytest.mark.parametrize(
    ("changes", "expiry"),
    [
        ({}, 2000.0),
        ({"aud": "istio-ca"}, 2000.0),
        ({"aud": None, "exp": None}, 1e12),
        ({"exp": 10**400}, 1e12),
        ({"exp": NOW - 59}, 941.0),
    ],
)
def test_tokens_that_an_api_server_may_accept_pass(changes: dict[str, Any], expiry: float) -> None:
    assert check_unverified(sign(claims(**{"exp": 2000, **changes})), ("istio-ca", "other"), NOW) == expiry


def test_any_audience_passes_if_none_is_required() -> None:
    assert check_unverified(sign(claims(aud=["x"], exp=2000)), (), NOW) == 2000.0


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (sign(claims(exp=NOW - 61)), "the token has expired"),
        (sign(claims(exp=-(10**400))), "the token has expired"),
        (sign(claims(exp="soon")), "the exp claim is not a number"),
        (sign(claims(exp=True)), "the exp claim is not a number"),
        (sign(claims(aud=["x", "y"])), "the audience of the token is x, y, not istio-ca or other"),
        (sign(claims(aud={})), "the aud claim is neither a string nor a list of strings"),
        (sign([]), "the token is not a JWT"),
        (sign(claims(), alg=1), "the header of the token has no algorithm"),
        ("opaque", "the token is not a JWT"),
        ("a.b.c.d", "the token is not a JWT"),
        (f"{HEADER}.\u00e9.x", "the token is not a JWT"),
        (f"{HEADER}.{base64url(b'[' * 9000)}.x", "the token is not a JWT"),
        ("x" * 16385, "the token has 16385 characters; at most 16384 are allowed"),
    ],
)
def test_other_tokens_are_rejected(token: str, reason: str) -> None:
    with pytest.raises(TokenError, match=f"^{re.escape(reason)}$"):
        check_unverified(token, ("istio-ca", "other"), NOW)
