"""The control plane's own server certificate, issued by its authority."""

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
    """A leaf certificate with its intermediates, and its private key, in PEM."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        """Return a representation without the key."""
        return "ServerCertificate(…)"


def issue_server_certificates(
    signer: Signer, names: Sequence[str], now: datetime.datetime
) -> tuple[ServerCertificate, ...]:
    """Return certificates for the DNS names. They are valid for ten years, or until the signer expires.

    Their keys are new and of the same type as the signer's key. If that is RSA, there is also a certificate with a
    P-256 key, with which a handshake costs less than a tenth. Raise SigningError if the signer has expired.
    """
    certificates = []
    for key in _keys_like(signer.key):
        leaf = signer.issue(SigningRequest(key.public_key(), False), sorted(set(names)), TTL, now)
        certificates.append(ServerCertificate(bundle_pem((leaf, *signer.intermediates)), key_pem(key)))
    return tuple(certificates)


def _keys_like(key: PrivateKey) -> tuple[PrivateKey, ...]:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return (ec.generate_private_key(key.curve),)
    p256 = ec.generate_private_key(ec.SECP256R1())
    return (rsa.generate_private_key(65537, 2048), p256) if isinstance(key, rsa.RSAPrivateKey) else (p256,)
