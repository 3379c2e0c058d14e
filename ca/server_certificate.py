"""The control plane's own certificate, issued by its authority for the DNS names at which proxies call it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, rsa

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


def issue_server_certificates(
    signer: Signer, names: Sequence[str], now: datetime.datetime
) -> tuple[ServerCertificate, ...]:
    """Returns certificates of new keys for ten years, or as long as the signer lives: of the signer's kind, and of P-256 beside RSA, which costs
    less than a tenth for each handshake with a peer that takes it. SigningError where the signer has ended."""
    issued = []
    for key in _keys_like(signer.key):
        leaf = signer.issue(SigningRequest(key.public_key(), False), sorted(set(names)), TTL, now)
        issued.append(ServerCertificate(bundle_pem((leaf, *signer.intermediates)), key_pem(key)))
    return tuple(issued)


def _keys_like(key: PrivateKey) -> tuple[PrivateKey, ...]:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return (ec.generate_private_key(key.curve),)
    modern = ec.generate_private_key(ec.SECP256R1())
    return (rsa.generate_private_key(65537, 2048), modern) if isinstance(key, rsa.RSAPrivateKey) else (modern,)
