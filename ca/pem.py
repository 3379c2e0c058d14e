"""PEM in and out: bundles of certificates, private keys."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca.errors import KeyMaterialError

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Returns one certificate as a PEM block with a final newline."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def bundle_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Returns certificates as PEM blocks one after the other."""
    return b"".join(map(certificate_pem, certificates))


def load_bundle(pem: bytes, where: str) -> tuple[x509.Certificate, ...]:
    """Returns the certificates of a PEM bundle, at least one. KeyMaterialError, which names `where`, where it holds none or a broken one."""
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, TypeError) as error:
        raise KeyMaterialError(f"{where}: it holds no certificates in PEM, or a broken one: {error}") from error


def load_key(pem: bytes, where: str) -> PrivateKey:
    """Returns a private key without a passphrase. KeyMaterialError, which names `where` and says nothing of the key, where it is none."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyMaterialError(f"{where}: it holds no private key in PEM, or one with a passphrase") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise KeyMaterialError(f"{where}: keys of type {type(key).__name__} are not supported")
    return key


def key_pem(key: PrivateKey) -> bytes:
    """Returns a private key in PEM (PKCS #8, no passphrase)."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
