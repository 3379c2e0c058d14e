"""Keys and certificates of a workload."""

from __future__ import annotations

import datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ca.csr import decode_csr
from pilot.agent.agent_settings import CertificateSettings
from pilot.agent.certificates.workload_certificate import (
    WorkloadCertificate,
    build_csr,
    check_key_settings,
    generate_key,
    key_pem,
    load_certificate,
)
from testing.security import certificates

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


HOUR = datetime.timedelta(hours=1)


IDENTITY = "spiffe://cluster.local/ns/shop/sa/web"


def certificate(not_before: datetime.datetime, not_after: datetime.datetime) -> WorkloadCertificate:
    return WorkloadCertificate(b"chain", b"key", b"roots", not_before, not_after)


@pytest.mark.parametrize(
    ("settings", "kind", "label"),
    [
        (CertificateSettings(), rsa.RSAPrivateKey, "RSA PRIVATE KEY"),
        (CertificateSettings(pkcs8=True), rsa.RSAPrivateKey, "PRIVATE KEY"),
        (CertificateSettings(algorithm="ECDSA"), ec.EllipticCurvePrivateKey, "EC PRIVATE KEY"),
        (CertificateSettings(algorithm="ECDSA", curve="P384"), ec.EllipticCurvePrivateKey, "EC PRIVATE KEY"),
    ],
)
def test_generated_key_type_and_format(settings: CertificateSettings, kind: type, label: str) -> None:
    check_key_settings(settings)
    key = generate_key(settings)
    assert isinstance(key, kind)
    assert key_pem(key, settings.pkcs8).startswith(f"-----BEGIN {label}-----".encode())
    decode_csr(build_csr(key, IDENTITY))  # the CA accepts it


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (CertificateSettings(rsa_bits=1024), "WORKLOAD_RSA_KEY_SIZE: 1024 bits are too few"),
        (CertificateSettings(algorithm="DSA"), "ECC_SIGNATURE_ALGORITHM: unknown algorithm 'DSA'"),
        (CertificateSettings(algorithm="ECDSA", curve="P1"), "ECC_CURVE: unknown curve 'P1'"),
    ],
)
def test_unknown_key_settings_are_rejected(settings: CertificateSettings, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_key_settings(settings)


def test_mismatched_key_is_rejected() -> None:
    root = certificates.root()
    chain = root.chain(root.issue(decode_csr(certificates.csr()), [IDENTITY], HOUR, certificates.NOW))
    with pytest.raises(ValueError, match="the private key does not match the certificate"):
        load_certificate(chain[0].encode(), key_pem(certificates.ec_key(7), True), chain[1].encode())
    with pytest.raises(ValueError, match="the root bundle contains no PEM certificate"):
        load_certificate(chain[0].encode(), key_pem(certificates.ec_key(), True), b"none")


def test_repr_omits_the_key() -> None:
    assert "key" not in repr(certificate(NOW, NOW + HOUR))
