"""Sets of public keys (JWKS, RFC 7517) that tokens are verified with."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
RSA_BITS = range(2048, 8193)
LARGEST_SET = 1 << 20
"""Bytes."""
MOST_KEYS = 256
_CURVES: Mapping[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}


class JwksError(ValueError):
    """A set of keys cannot be read; the text says why."""


class Jwk(NamedTuple):
    """One public key of a set. `id` is "" where the set gives none, and `algorithm` is "" where the key may be used with any that fits it."""

    id: str
    algorithm: str
    public: PublicKey


def decode_base64url(text: Any) -> bytes:
    """Returns the bytes of unpadded base64url. ValueError for any other text, padding included, and for what is no text."""
    if not isinstance(text, str) or not text.isascii() or "=" in text or "+" in text or "/" in text:
        raise ValueError("no base64url without padding")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64url: {error}") from None


def parse_jwks(data: bytes) -> Sequence[Jwk]:
    """Returns the keys of a set that signatures can be verified with; keys of other kinds and for other uses are left out. JwksError where
    the data is no set, or one of its signing keys is broken."""
    if len(data) > LARGEST_SET:
        raise JwksError(f"{len(data)} bytes are more than {LARGEST_SET}")
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise JwksError(f"it is no JSON: {error}") from None
    keys = plain.get("keys") if isinstance(plain, dict) else None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise JwksError(f"an object with a list `keys` of at most {MOST_KEYS} is expected")
    return tuple(key for index, one in enumerate(keys) if (key := _key(one, f"keys[{index}]")) is not None)


def _key(plain: Any, where: str) -> Jwk | None:
    if not isinstance(plain, dict):
        raise JwksError(f"{where}: an object is expected")
    if plain.get("use", "sig") != "sig":
        return None
    identifier, algorithm = plain.get("kid", ""), plain.get("alg", "")
    if not isinstance(identifier, str) or not isinstance(algorithm, str):
        raise JwksError(f"{where}: kid and alg are texts")
    try:
        public = _public(plain)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise JwksError(f"{where}: the key is broken: {error}") from None
    return Jwk(identifier, algorithm, public) if public is not None else None


def _public(plain: Mapping[str, Any]) -> PublicKey | None:
    """Returns the public key; None for a kind that is not known."""
    match plain.get("kty"):
        case "RSA":
            made = rsa.RSAPublicNumbers(_number(plain["e"]), _number(plain["n"])).public_key()
            if made.key_size not in RSA_BITS:
                raise ValueError(f"{made.key_size} bits")
            return made
        case "EC" if plain.get("crv") in _CURVES:
            return ec.EllipticCurvePublicNumbers(
                _number(plain["x"]), _number(plain["y"]), _CURVES[plain["crv"]]
            ).public_key()
        case "OKP" if plain.get("crv") == "Ed25519":
            return ed25519.Ed25519PublicKey.from_public_bytes(decode_base64url(plain["x"]))
    return None


def _number(text: Any) -> int:
    return int.from_bytes(decode_base64url(text), "big")
