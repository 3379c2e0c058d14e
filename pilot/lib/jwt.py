"""Signed tokens (JWT, RFC 7519, in the compact form of RFC 7515): their claims are returned only once a key of a given set has signed them.

The algorithms are those of public keys alone. A token is never verified with a key that its own header brings, and `kid`, where a token has one,
must name a key of the set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

from pilot.lib.jwks import Jwk, decode_base64url

LONGEST_TOKEN = 16 * 1024
"""Characters."""
NOT_BEFORE_SKEW = 60.0
"""Seconds that the clock of who issued a token may be ahead."""


class TokenError(ValueError):
    """A token is not accepted; the text says why and holds nothing of its signature."""


class _Algorithm(NamedTuple):
    kind: type
    curve: str
    verify: Callable[[Any, bytes, bytes], None]


def verify_token(token: str, keys: Sequence[Jwk], now: float) -> Mapping[str, Any]:
    """Returns the claims of a token that one of the keys has signed and that is valid at `now`, in seconds since 1970. TokenError otherwise."""
    if len(token) > LONGEST_TOKEN:
        raise TokenError(f"the token has {len(token)} characters, more than {LONGEST_TOKEN}")
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise TokenError("the token does not have three parts")
    header = _object(parts[0], "header")
    algorithm = _find_algorithm(header)
    candidates = [key for key in keys if _may_verify(key, header, algorithm)]
    if not candidates:
        raise TokenError("no known key is the token's")
    signed = f"{parts[0]}.{parts[1]}".encode()
    try:
        signature = decode_base64url(parts[2])
    except ValueError as error:
        raise TokenError(f"the signature of the token is {error}") from None
    if not any(_is_signed(algorithm, key, signature, signed) for key in candidates):
        raise TokenError("the signature of the token is wrong")
    claims = _object(parts[1], "payload")
    _check_times(claims, now)
    return claims


def own_claims(token: str) -> Mapping[str, Any]:
    """Returns what a token of this process itself says, whose signature proves nothing to it. TokenError where it cannot be read."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenError("the token does not have three parts")
    return _object(parts[1], "payload")


def audiences_of(claims: Mapping[str, Any]) -> Sequence[str]:
    """Returns whom the claim `aud` names. TokenError where it is neither a text nor a list of texts."""
    found = claims.get("aud", ())
    named = (found,) if isinstance(found, str) else found
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise TokenError("the claim aud is neither a text nor a list of texts")
    return tuple(named)


def _object(part: str, what: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(decode_base64url(part))
    except (ValueError, RecursionError) as error:
        raise TokenError(f"the {what} of the token cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise TokenError(f"the {what} of the token is no object")
    return found


def _find_algorithm(header: Mapping[str, Any]) -> _Algorithm:
    name = header.get("alg")
    algorithm = _ALGORITHMS.get(name) if isinstance(name, str) else None
    if algorithm is None:
        raise TokenError("the algorithm of the token is none that is accepted")
    if "crit" in header:
        raise TokenError("the token has critical extensions, of which none is known")
    return algorithm


def _may_verify(key: Jwk, header: Mapping[str, Any], algorithm: _Algorithm) -> bool:
    if "kid" in header and header["kid"] != key.id:
        return False
    if key.algorithm and key.algorithm != header["alg"]:
        return False
    return isinstance(key.public, algorithm.kind) and (not algorithm.curve or algorithm.curve == key.public.curve.name)


def _is_signed(algorithm: _Algorithm, key: Jwk, signature: bytes, signed: bytes) -> bool:
    try:
        algorithm.verify(key.public, signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    expires, begins = claims.get("exp"), claims.get("nbf", 0)
    for name, value in (("exp", expires), ("nbf", begins)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TokenError(f"the claim {name} is no number")
    assert expires is not None
    if now >= expires:
        raise TokenError("the token has expired")
    if now < begins - NOT_BEFORE_SKEW:
        raise TokenError("the token is not valid yet")


def _pkcs1(digest: hashes.HashAlgorithm) -> Callable[[rsa.RSAPublicKey, bytes, bytes], None]:
    return lambda key, signature, signed: key.verify(signature, signed, padding.PKCS1v15(), digest)


def _pss(digest: hashes.HashAlgorithm) -> Callable[[rsa.RSAPublicKey, bytes, bytes], None]:
    scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
    return lambda key, signature, signed: key.verify(signature, signed, scheme, digest)


def _ecdsa(digest: hashes.HashAlgorithm, half: int) -> Callable[[ec.EllipticCurvePublicKey, bytes, bytes], None]:
    def verify(key: ec.EllipticCurvePublicKey, signature: bytes, signed: bytes) -> None:
        if len(signature) != 2 * half:
            raise InvalidSignature
        r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(digest))

    return verify


def _eddsa(key: ed25519.Ed25519PublicKey, signature: bytes, signed: bytes) -> None:
    key.verify(signature, signed)


_DIGESTS = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_ALGORITHMS: Mapping[str, _Algorithm] = {
    **{f"RS{size}": _Algorithm(rsa.RSAPublicKey, "", _pkcs1(digest)) for size, digest in _DIGESTS.items()},
    **{f"PS{size}": _Algorithm(rsa.RSAPublicKey, "", _pss(digest)) for size, digest in _DIGESTS.items()},
    "ES256": _Algorithm(ec.EllipticCurvePublicKey, "secp256r1", _ecdsa(hashes.SHA256(), 32)),
    "ES384": _Algorithm(ec.EllipticCurvePublicKey, "secp384r1", _ecdsa(hashes.SHA384(), 48)),
    "ES512": _Algorithm(ec.EllipticCurvePublicKey, "secp521r1", _ecdsa(hashes.SHA512(), 66)),
    "EdDSA": _Algorithm(ed25519.Ed25519PublicKey, "", _eddsa),
}
