"""JSON Web Key Sets (JWKS, RFC 7517) for the verification of tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
RSA_BITS = range(2048, 8193)
LARGEST_SET = 1 << 20
"""Maximum size of a key set in bytes."""
MOST_KEYS = 256
_ALGORITHMS: Mapping[tuple[str, str], Sequence[str]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""Signature algorithms, keyed by key type and curve."""
_BASE64URL = re.compile(r"[\w-]+", re.ASCII)


class JwksError(ValueError):
    """An invalid key set. The message states the reason."""


class Jwk(NamedTuple):
    """A public key in a key set.

    `id` is "" if the key has no ID. `algorithms` contains the algorithms of the key's type and curve. If the key has an
    `alg`, this is the only algorithm.
    """

    id: str
    algorithms: Sequence[str]
    public: PublicKey


def parse_jwks(data: bytes) -> Sequence[Jwk]:
    """Return the signing keys in a key set.

    Raise JwksError if the data is not a key set, or if a signing key is invalid. Keys of unsupported types, and keys
    for other uses, are skipped.
    """
    if len(data) > LARGEST_SET:
        raise JwksError(f"{len(data)} bytes exceed the limit of {LARGEST_SET}")
    try:
        plain = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise JwksError(f"invalid JSON: {error}") from None
    keys = plain.get("keys") if isinstance(plain, dict) else None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise JwksError(f"expected an object in which `keys` is a list of at most {MOST_KEYS} keys")
    return tuple(key for index, item in enumerate(keys) if (key := _parse_key(item, f"keys[{index}]")) is not None)


def _parse_key(plain: Any, path: str) -> Jwk | None:
    if not isinstance(plain, dict):
        raise JwksError(f"{path}: expected an object")
    if plain.get("use", "sig") != "sig":
        return None
    key_id, algorithm = plain.get("kid", ""), plain.get("alg", "")
    if not isinstance(key_id, str) or not isinstance(algorithm, str):
        raise JwksError(f"{path}: kid and alg must be strings")
    kind, curve = plain.get("kty"), plain.get("crv")
    algorithms = _ALGORITHMS.get((str(kind), "" if kind == "RSA" else str(curve)))
    if algorithms is None:
        return None
    try:
        public = _load(plain, algorithms[0])
    except (ValueError, jwt.PyJWTError, UnsupportedAlgorithm) as error:
        raise JwksError(f"{path}: invalid key: {error}") from None
    return Jwk(key_id, tuple(name for name in algorithms if algorithm in ("", name)), public)


def _load(plain: Mapping[str, Any], algorithm: str) -> PublicKey:
    # PyJWT returns a private key if there are private members, and skips characters that are not base64url.
    members = {name: plain[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in plain}
    if not all(_BASE64URL.fullmatch(str(value)) for value in members.values()):
        raise ValueError("a member of the key is not base64url without padding")
    public: PublicKey = jwt.PyJWK(members, algorithm).key
    if isinstance(public, rsa.RSAPublicKey) and public.key_size not in RSA_BITS:
        raise ValueError(f"RSA keys of {public.key_size} bits are not supported")
    return public
