"""Checks of a service account token that need neither keys nor an API server.

They reject a token that its API server would certainly reject. A token that passes is not trusted yet.

https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#token-controller
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from pilot.lib.tokens.jwt import LONGEST_TOKEN, TokenError, audiences_of

EXPIRY_SKEW = 60.0
"""Number of seconds that the clock of this process may be ahead of the API server's clock."""
_DISTANT_FUTURE = 1e12
"""Unix time that replaces all later times, which may exceed the range of floats."""


def check_unverified(token: str, audiences: Collection[str], now: float) -> float:
    """Return the Unix time at which a token expires. It is in the distant future if the token does not expire.

    Raise TokenError if the token is not a JWT, if it has expired at `now`, a Unix time, or if it names audiences but
    none of `audiences`. Tokens in old Secrets may have no `exp` and no `aud` claim. API servers accept them.
    """
    claims = unverified_claims(token)
    expiry = claims.get("exp", _DISTANT_FUTURE)
    if isinstance(expiry, bool) or not isinstance(expiry, int | float):
        raise TokenError("the exp claim is not a number")
    expiry = min(max(expiry, 0.0), _DISTANT_FUTURE)
    if now >= expiry + EXPIRY_SKEW:
        raise TokenError("the token has expired")
    intended = audiences_of(claims)
    if intended and audiences and set(audiences).isdisjoint(intended):
        raise TokenError(f"the audience of the token is {', '.join(intended)}, not {' or '.join(audiences)}")
    return float(expiry)


def unverified_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a token. Raise TokenError if it is not a JWT."""
    if len(token) > LONGEST_TOKEN:
        raise TokenError(f"the token has {len(token)} characters; at most {LONGEST_TOKEN} are allowed")
    header, claims = (_decode_segment(segment) for segment in _segments(token))
    if not isinstance(header.get("alg"), str):
        raise TokenError("the header of the token has no algorithm")
    return claims


def _segments(token: str) -> tuple[str, str]:
    segments = token.split(".", 3)
    if len(segments) != 3:
        raise TokenError("the token is not a JWT")
    return segments[0], segments[1]


def _decode_segment(segment: str) -> Mapping[str, Any]:
    try:
        plain = msgspec.json.decode(urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenError("the token is not a JWT") from None
    if not isinstance(plain, dict):
        raise TokenError("the token is not a JWT")
    return plain
