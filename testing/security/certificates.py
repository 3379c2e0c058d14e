"""Keys, signing requests and authorities. RSA keys are slow to generate, so they are cached by size."""

from __future__ import annotations

import base64
import datetime
import functools
import pathlib
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ca.pem import bundle_pem, certificate_pem, key_pem
from ca.self_signed import sign_root
from ca.signer import Signer, hash_of, key_usage

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
IDENTITY = "spiffe://cluster.local/ns/shop/sa/web"


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key(number: int = 0, curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def name(organization: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization)])


@functools.cache
def root(number: int = 0, lifetime: datetime.timedelta = 100 * DAY, now: datetime.datetime = NOW) -> Signer:
    """Return a self-signed signer with an EC key that depends on the number."""
    return sign_root(ec_key(100 + number), name(f"domain-{number}"), lifetime, now)


def intermediate(
    issuer: Signer, number: int = 0, lifetime: datetime.timedelta = 10 * DAY, now: datetime.datetime = NOW
) -> Signer:
    """Return a signer whose certificate is issued by another one."""
    key = ec_key(200 + number)
    subject = name(f"intermediate-{number}")
    builder = x509.CertificateBuilder(
        issuer.certificate.subject, subject, key.public_key(), x509.random_serial_number(), now - DAY, now + lifetime
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(key_usage("key_cert_sign"), critical=True)
    certificate = builder.sign(issuer.key, hash_of(issuer.key))
    return Signer(certificate, key, (certificate, *issuer.intermediates), issuer.roots)


def csr(key: Any = None, names: tuple[str, ...] = (), common_name: str | None = None) -> bytes:
    """Return a signing request for URIs, in PEM."""
    subject = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)] if common_name is not None else []
    builder = x509.CertificateSigningRequestBuilder(x509.Name(subject))
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name) for name in names]), critical=True
        )
    key = key or ec_key()
    return builder.sign(key, hash_of(key)).public_bytes(serialization.Encoding.PEM)


def request_pem(der: bytes) -> bytes:
    """Return any bytes in the PEM format of signing requests."""
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE REQUEST-----\n"


def write_plugged_in(folder: pathlib.Path, signer: Signer) -> None:
    """Write the four files of Istio's plugged-in CA certificates."""
    (folder / "ca-cert.pem").write_bytes(certificate_pem(signer.certificate))
    (folder / "ca-key.pem").write_bytes(key_pem(signer.key))
    (folder / "cert-chain.pem").write_bytes(bundle_pem(signer.intermediates or (signer.certificate,)))
    (folder / "root-cert.pem").write_bytes(signer.roots_pem)
