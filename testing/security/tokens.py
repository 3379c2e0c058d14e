"""Service account tokens, and the keys that verify them."""

from __future__ import annotations

import base64
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from testing.security.certificates import ec_key, rsa_key

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "istio-ca"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _integer(number: int, size: int) -> str:
    return base64url(number.to_bytes(size, "big"))


def jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str = "one", **more: Any) -> dict[str, Any]:
    """Return the public key as a JWK."""
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "kid": kid,
            "n": _integer(numbers.n, key.key_size // 8),
            "e": _integer(numbers.e, 3),
            **more,
        }
    point = key.public_key().public_numbers()
    return {"kty": "EC", "kid": kid, "crv": "P-256", "x": _integer(point.x, 32), "y": _integer(point.y, 32), **more}


def write_keys(path: pathlib.Path, *keys: Mapping[str, Any]) -> pathlib.Path:
    """Write a file for `--tokenKeys`, by default with the key that signs `token`."""
    path.write_text(json.dumps({"keys": list(keys) or [jwk(rsa_key())]}))
    return path


def sign(claims: Any, key: Any = None, **header: Any) -> str:
    """Return a token in compact form. Headers that are None are omitted."""
    key = key or rsa_key()
    default = {"alg": "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256", "kid": "one"}
    signed = ".".join(
        base64url(json.dumps(part).encode())
        for part in ({k: v for k, v in {**default, **header}.items() if v is not None}, claims)
    )
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{signed}.{base64url(signature)}"


def claims(namespace: str = "shop", account: str = "web", **more: Any) -> dict[str, Any]:
    """Return the claims of a token. Claims that are None are omitted."""
    now = int(time.time())
    subject = f"system:serviceaccount:{namespace}:{account}"
    defaults = {"iss": ISSUER, "aud": [AUDIENCE], "sub": subject, "iat": now, "nbf": now, "exp": now + 3600, **more}
    return {name: value for name, value in defaults.items() if value is not None}


def token(namespace: str = "shop", account: str = "web", **more: Any) -> str:
    """Return a service account token, signed with the default key of `write_keys`."""
    return sign(claims(namespace, account, **more))


def other_key() -> ec.EllipticCurvePrivateKey:
    """Return a key that is not in any key file by default."""
    return ec_key(77)
