"""Verifies signed tokens (JWT, RFC 7519) in compact form.

A token is verified only with the keys of a given key set, never with a key in the token's header. Only public-key
algorithms are accepted. If a token has a `kid`, it must be the ID of a key in the set.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jwt
import msgspec

from pilot.lib.tokens.jwks import Jwk

LONGEST_TOKEN = 16 * 1024
"""Maximum length of a token in characters."""
MOST_CANDIDATES = 8
"""Maximum number of keys with which a token is verified. In larger key sets, the `kid` of a token selects the keys."""
NOT_BEFORE_SKEW = 60.0
"""Number of seconds that the issuer's clock may be ahead."""
_JWS = jwt.PyJWS()


class TokenError(ValueError):
    """A token that is rejected. The message states the reason and contains no part of the signature."""


def verify_token(token: str, keys: Sequence[Jwk], now: float) -> Mapping[str, Any]:
    """Return the claims of a token.

    Raise TokenError if none of the keys has signed the token, or if the token is not valid at `now`, a Unix time.
    """
    if len(token) > LONGEST_TOKEN:
        raise TokenError(f"the token has {len(token)} characters; at most {LONGEST_TOKEN} are allowed")
    header, payload, signature = (_decode_segment(segment) for segment in _segments(token))  # once for all candidates
    fields = _decode_object("header", header)
    candidates = _find_candidates(fields, keys)
    _verify_signature(token, signature, fields["alg"], candidates)
    claims = _decode_object("payload", payload)
    _check_times(claims, now)
    return claims


def own_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of this process's own token without verifying it.

    Raise TokenError if the token is malformed.
    """
    try:
        return jwt.decode(token, options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise TokenError(f"invalid token: {error}") from None


def audiences_of(claims: Mapping[str, Any]) -> Sequence[str]:
    """Return the audiences of a token.

    Raise TokenError if the `aud` claim is neither a string nor a list of strings.
    """
    claim = claims.get("aud", ())
    audiences = (claim,) if isinstance(claim, str) else claim
    if not isinstance(audiences, list | tuple) or not all(isinstance(audience, str) for audience in audiences):
        raise TokenError("the aud claim is neither a string nor a list of strings")
    return tuple(audiences)


def check_recipient(claims: Mapping[str, Any], issuer: str, audiences: Collection[str]) -> None:
    """Raise TokenError unless the token is from `issuer` and has one of the `audiences`. The issuer "" accepts any."""
    if issuer and claims.get("iss") != issuer:
        raise TokenError(f"the issuer of the token is not {issuer}")
    intended = audiences_of(claims)
    if not set(intended) & set(audiences):
        raise TokenError(f"the audience of the token is {', '.join(intended) or 'empty'}, not {', '.join(audiences)}")


def _find_candidates(header: Mapping[str, Any], keys: Sequence[Jwk]) -> Sequence[Jwk]:
    if "crit" in header or "b64" in header:
        raise TokenError("the token has critical extensions, which are not supported")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        raise TokenError("the header of the token has no algorithm")
    candidates = [key for key in keys if algorithm in key.algorithms and header.get("kid", key.id) == key.id]
    if not candidates:
        raise TokenError("no key of the set has the token's key ID and algorithm")
    if len(candidates) > MOST_CANDIDATES:
        raise TokenError(f"{len(candidates)} keys may have signed the token; at most {MOST_CANDIDATES} are tried")
    return candidates


def _verify_signature(token: str, signature: bytes, algorithm: str, candidates: Sequence[Jwk]) -> None:
    """Raise TokenError if none of the candidates has signed the token. All of them support the algorithm."""
    signed, verify = token.rpartition(".")[0].encode(), _JWS.get_algorithm_by_name(algorithm).verify
    if not any(verify(signed, key.public, signature) for key in candidates):
        raise TokenError("the signature of the token is invalid")


def _segments(token: str) -> Sequence[str]:
    segments = token.split(".", 3)
    if len(segments) != 3:
        raise TokenError(f"invalid token: it has {len(segments)} segments instead of 3")
    return segments


def _decode_segment(segment: str) -> bytes:
    """Return the bytes of a segment. Raise TokenError unless it is their only encoding in base64url, which the decoder
    does not check."""
    try:
        plain = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except ValueError:
        raise TokenError("invalid token: a segment is not in base64url") from None
    if urlsafe_b64encode(plain).rstrip(b"=") != segment.encode():
        raise TokenError("invalid token: a segment is not in base64url without padding")
    return plain


def _decode_object(part: str, plain: bytes) -> Mapping[str, Any]:
    try:  # msgspec rejects NaN, which Python's own decoder accepts: a token with such an `exp` would never expire
        fields = msgspec.json.decode(plain)
    except (ValueError, RecursionError) as error:
        raise TokenError(f"the {part} of the token is invalid: {error}") from None
    if not isinstance(fields, dict):
        raise TokenError(f"the {part} of the token is not a JSON object")
    return fields


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    for name in ("exp", "nbf"):
        claim = claims.get(name, 0 if name == "nbf" else None)
        if isinstance(claim, bool) or not isinstance(claim, int | float):
            raise TokenError(f"the {name} claim is not a number")
    if now >= claims["exp"]:
        raise TokenError("the token has expired")
    if now < claims.get("nbf", 0) - NOT_BEFORE_SKEW:
        raise TokenError("the token is not valid yet")
