"""Service account tokens in the format of Kubernetes, for a machine without Kubernetes."""

from __future__ import annotations

import base64
import json
import pathlib
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

KEY_ID = "sample"
LIFETIME = 24 * 3600
"""Lifetime of tokens in seconds."""


class Issuer:
    """Signs tokens with its own key, which the control plane reads from a file."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def write_keys(self, path: pathlib.Path) -> None:
        """Write the public key as a JWKS."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": KEY_ID,
            "n": _base64(numbers.n.to_bytes(256, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }
        path.write_text(json.dumps({"keys": [key]}))

    def issue(self, namespace: str, account: str) -> str:
        """Return a token for a service account."""
        now = int(time.time())
        claims = {
            "iss": "sample",
            "aud": ["istio-ca"],
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "iat": now,
            "exp": now + LIFETIME,
        }
        signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": KEY_ID}, claims))
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
