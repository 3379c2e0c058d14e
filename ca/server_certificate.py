"""The control plane's own certificate, issued by its authority for the DNS names at which proxies call it."""
from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca.csr import SigningRequest
from ca.pem import PrivateKey, bundle_pem, key_pem
from ca.signer import Signer

TTL = datetime.timedelta(days=3650)


class ServerCertificate(NamedTuple):
    """A leaf with its intermediates, and its private key, in PEM."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        """Returns a text without the key."""
        return "ServerCertificate(…)"


def issue_server_certificate(signer: Signer, names: Sequence[str], now: datetime.datetime) -> ServerCertificate:
    """Returns a new key of the signer's kind, and its certificate for ten years or as long as the signer lives. SigningError where that has ended."""
    key = _key_like(signer.key)
    leaf = signer.issue(SigningRequest(key.public_key(), False), sorted(set(names)), TTL, now)
    return ServerCertificate(bundle_pem((leaf, *signer.intermediates)), key_pem(key))


def _key_like(key: PrivateKey) -> PrivateKey:
    match key:
        case ec.EllipticCurvePrivateKey():
            return ec.generate_private_key(key.curve)
        case ed25519.Ed25519PrivateKey():
            return ec.generate_private_key(ec.SECP256R1())
    assert isinstance(key, rsa.RSAPrivateKey)
    return rsa.generate_private_key(65537, 2048)
