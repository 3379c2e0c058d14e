"""Service account tokens as Kubernetes would issue them, for a machine without Kubernetes."""

from __future__ import annotations

import base64
import json
import pathlib
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

KEY_ID = "sample"
LIFE = 24 * 3600
"""Seconds."""


class Issuer:
    """Signs tokens with a key of its own, which the control plane is told of by a file."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def write_keys(self, path: pathlib.Path) -> None:
        """Writes the public key as a JWKS."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": KEY_ID,
            "n": _base64(numbers.n.to_bytes(256, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }
        path.write_text(json.dumps({"keys": [key]}))

    def issue(self, namespace: str, account: str) -> str:
        """Returns a token of a service account."""
        now = int(time.time())
        claims = {
            "iss": "sample",
            "aud": ["istio-ca"],
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "iat": now,
            "exp": now + LIFE,
        }
        signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": KEY_ID}, claims))
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
