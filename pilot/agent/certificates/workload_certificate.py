"""Private keys, certificate signing requests and certificates of a workload."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pilot.agent.agent_settings import CertificateSettings

CURVES: dict[str, type[ec.EllipticCurve]] = {"P256": ec.SECP256R1, "P384": ec.SECP384R1}
MIN_RSA_BITS = 2048
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class WorkloadCertificate(NamedTuple):
    """A certificate chain with the leaf first, its private key, the mesh's roots, and the validity period of the leaf.

    The chain, the key and the roots are PEM.
    """

    chain: bytes
    key: bytes
    roots: bytes
    not_before: datetime.datetime
    not_after: datetime.datetime

    def __repr__(self) -> str:
        # Leaves out the private key.
        return f"Certificate({self.not_before:%Y-%m-%dT%H:%M:%SZ} to {self.not_after:%Y-%m-%dT%H:%M:%SZ})"


def check_key_settings(settings: CertificateSettings) -> None:
    """Check that the settings describe a supported key. Raises ValueError with a message for the user."""
    if settings.algorithm == "":
        if settings.rsa_bits < MIN_RSA_BITS:
            raise ValueError(
                f"WORKLOAD_RSA_KEY_SIZE: {settings.rsa_bits} bits are too few; use at least {MIN_RSA_BITS}"
            )
    elif settings.algorithm != "ECDSA":
        raise ValueError(f"ECC_SIGNATURE_ALGORITHM: unknown algorithm {settings.algorithm!r}; use ECDSA")
    elif settings.curve not in CURVES:
        raise ValueError(f"ECC_CURVE: unknown curve {settings.curve!r}; use {' or '.join(CURVES)}")


def generate_key(settings: CertificateSettings) -> PrivateKey:
    """Return a new private key."""
    if settings.algorithm == "ECDSA":
        return ec.generate_private_key(CURVES[settings.curve]())
    return rsa.generate_private_key(65537, settings.rsa_bits)


def key_pem(key: PrivateKey, pkcs8: bool) -> bytes:
    """Return a private key as PEM, either in PKCS #8 format or in the traditional format of its algorithm."""
    encoding = serialization.PrivateFormat.PKCS8 if pkcs8 else serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, encoding, serialization.NoEncryption())


def build_csr(key: PrivateKey, identity: str) -> bytes:
    """Return a certificate signing request in PEM for a SPIFFE identity.

    The authority takes the identity from the caller's credentials and ignores the one in the request.
    """
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(names, critical=False)
    digest = (
        hashes.SHA384() if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size > 256 else hashes.SHA256()
    )
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def load_certificate(chain: bytes, key: bytes, roots: bytes) -> WorkloadCertificate:
    """Parse a certificate from PEM.

    Raises ValueError if the chain or the roots contain no certificate, or if the key does not match the leaf.
    """
    leaf = _first_certificate("the certificate chain", chain)
    _first_certificate("the root bundle", roots)
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        raise ValueError("the private key must be an unencrypted PEM key") from None
    encoding = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*encoding) != leaf.public_key().public_bytes(*encoding):
        raise ValueError("the private key does not match the certificate")
    return WorkloadCertificate(chain, key, roots, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def _first_certificate(description: str, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{description} contains no PEM certificate: {error}") from error
