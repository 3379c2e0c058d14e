"""PEM encoding and decoding of certificates and private keys."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca.errors import KeyMaterialError

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as a PEM block with a final newline."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def bundle_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as concatenated PEM blocks."""
    return b"".join(map(certificate_pem, certificates))


def load_bundle(pem: bytes, where: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates in a PEM bundle. There is at least one.

    Raise KeyMaterialError with `where` if there is none or one is invalid.
    """
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, TypeError) as error:
        raise KeyMaterialError(f"{where}: no valid certificates in PEM: {error}") from error


def load_key(pem: bytes, where: str) -> PrivateKey:
    """Return an unencrypted private key.

    Raise KeyMaterialError with `where` if there is none. The message does not reveal the key.
    """
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyMaterialError(f"{where}: expected an unencrypted private key in PEM") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise KeyMaterialError(f"{where}: keys of type {type(key).__name__} are not supported")
    return key


def key_pem(key: PrivateKey) -> bytes:
    """Return a private key as unencrypted PKCS #8 in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
