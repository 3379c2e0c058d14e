"""The workload's key, the request that it signs, and what comes of it."""

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
    """The workload's certificate chain, the leaf first, its private key and the mesh's roots, each in PEM; and the life of the leaf."""

    chain: bytes
    key: bytes
    roots: bytes
    begins: datetime.datetime
    ends: datetime.datetime

    def __repr__(self) -> str:
        return f"Certificate({self.begins:%Y-%m-%dT%H:%M:%SZ} to {self.ends:%Y-%m-%dT%H:%M:%SZ})"  # never the key


def check_key_settings(settings: CertificateSettings) -> None:
    """Raises ValueError, a sentence for the user, where the settings ask for a key that does not exist."""
    if settings.algorithm == "":
        if settings.rsa_bits < MIN_RSA_BITS:
            raise ValueError(f"WORKLOAD_RSA_KEY_SIZE: {settings.rsa_bits} bits are too few: use {MIN_RSA_BITS} or more")
    elif settings.algorithm != "ECDSA":
        raise ValueError(f"ECC_SIGNATURE_ALGORITHM: {settings.algorithm!r} is not known: use ECDSA")
    elif settings.curve not in CURVES:
        raise ValueError(f"ECC_CURVE: {settings.curve!r} is not known: use {', '.join(CURVES)}")


def generate_key(settings: CertificateSettings) -> PrivateKey:
    """Returns a new private key."""
    if settings.algorithm == "ECDSA":
        return ec.generate_private_key(CURVES[settings.curve]())
    return rsa.generate_private_key(65537, settings.rsa_bits)


def key_pem(key: PrivateKey, pkcs8: bool) -> bytes:
    """Returns a private key in PEM: PKCS #8, or the older format of its algorithm."""
    form = serialization.PrivateFormat.PKCS8 if pkcs8 else serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def build_csr(key: PrivateKey, identity: str) -> bytes:
    """Returns a signing request in PEM for a SPIFFE identity; the authority takes the identity from who asks, and not from here."""
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(names, critical=False)
    digest = (
        hashes.SHA384() if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size > 256 else hashes.SHA256()
    )
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def load_certificate(chain: bytes, key: bytes, roots: bytes) -> WorkloadCertificate:
    """Returns the certificate that PEM texts hold. ValueError, which says what is wrong, where the chain and the roots are no
    certificates, or the key is not that of the leaf."""
    leaf = _first("the certificate chain", chain)
    _first("the bundle of roots", roots)
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        raise ValueError("the private key is not one in PEM without a passphrase") from None
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise ValueError("the private key is not that of the certificate")
    return WorkloadCertificate(chain, key, roots, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def _first(what: str, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{what} holds no certificate in PEM: {error}") from error
