"""Messages about files with certificates and private keys that cannot be used together."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pilot.lib.pem_files import PemError, PemFile, check_pair, load_certificates
from testing.control_planes.secure_plane import issue
from testing.security.certificates import root

ROOT = root(1)
NOW = ROOT.certificate.not_valid_before_utc
ONE = issue(ROOT, "one", now=NOW)
KEY = ec.generate_private_key(ec.SECP256R1())
PLAIN = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
ENCRYPTED = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
)
TRADITIONAL = KEY.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.TraditionalOpenSSL,
    serialization.BestAvailableEncryption(b"secret"),
)
REQUEST = (
    x509.CertificateSigningRequestBuilder(x509.Name([]))
    .sign(KEY, hashes.SHA256())
    .public_bytes(serialization.Encoding.PEM)
)
CERTIFICATE = x509.load_pem_x509_certificate(ONE.chain)
DER = CERTIFICATE.public_bytes(serialization.Encoding.DER)
DECRYPT = "contains an encrypted private key: decrypt it, with openssl pkey -in FILE -out OUT"


def test_matching_pair_is_accepted() -> None:
    check_pair(PemFile("a", ONE.chain), PemFile("b", ONE.key))
    both = PemFile("a", ONE.key + ONE.chain)
    check_pair(both, both)


@pytest.mark.parametrize(
    ("chain", "key", "message"),
    [
        (ONE.chain, PLAIN, "b does not match a: the certificate was issued for another private key"),
        (
            ROOT.roots_pem + ONE.chain,
            ONE.key,
            "b does not match the first certificate in a, but number 2; move that one to the top",
        ),
        (ONE.key, ONE.chain, "a contains a private key, and b a certificate: swap the two files"),
        (ONE.chain, ENCRYPTED, f"b {DECRYPT}"),
        (ONE.chain, TRADITIONAL, f"b {DECRYPT}"),
        (ONE.chain, b"\n", "b is empty: it must contain a private key in PEM"),
        (b"", ONE.key, "a is empty: it must contain a certificate in PEM"),
        (REQUEST, ONE.key, "a contains a CERTIFICATE REQUEST, not a certificate"),
        (ONE.chain, ONE.chain, "b contains a CERTIFICATE, not a private key"),
        (ONE.key, ONE.key, "a contains a PRIVATE KEY, not a certificate"),
        (ONE.chain, b"hello", "b contains no private key in PEM, which starts with -----BEGIN"),
        (
            DER,
            ONE.key,
            "a contains no certificate in PEM, which starts with -----BEGIN; "
            "convert DER with openssl x509 -inform der -in FILE -out OUT",
        ),
        (ONE.chain, ONE.key[:60], "b contains an invalid private key, so it may be truncated"),
    ],
)
def test_error_names_the_file_and_the_fix(chain: bytes, key: bytes, message: str) -> None:
    with pytest.raises(PemError) as raised:
        check_pair(PemFile("a", chain), PemFile("b", key))
    assert str(raised.value) == message


def test_truncated_certificate_is_named() -> None:
    with pytest.raises(PemError, match=r"^roots contains an invalid certificate, so it may be truncated: "):
        load_certificates(PemFile("roots", ONE.chain[:200]))
