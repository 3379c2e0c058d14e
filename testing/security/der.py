"""Certificates and keys with contents that no library would create, encoded in DER and PEM."""

from __future__ import annotations

import base64
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

INTEGER, BIT_STRING, OCTET_STRING, UTF8_STRING, UTC_TIME, SEQUENCE, SET = 0x02, 0x03, 0x04, 0x0C, 0x17, 0x30, 0x31
RSA_KEY = bytes.fromhex("300d06092a864886f70d0101010500")
"""The type of RSA keys."""
DSA_KEY = bytes.fromhex("06072a8648ce380401")
_KEY = ec.generate_private_key(ec.SECP256R1())
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
_SIGNED_WITH = bytes.fromhex("300a06082a8648ce3d040302")


def element(tag: int, *parts: bytes) -> bytes:
    """Return an element of DER."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def integer(value: int) -> bytes:
    return element(INTEGER, value.to_bytes(value.bit_length() // 8 + 1))


def encode_pem(label: str, der: bytes) -> bytes:
    """Return a PEM block."""
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label.encode(), base64.encodebytes(der), label.encode())


def rsa_private_key(n: int, e: int, d: int, p: int, q: int, dmp1: int, dmq1: int, iqmp: int) -> bytes:
    """Return a private RSA key in PEM, in the traditional format."""
    numbers = map(integer, (0, n, e, d, p, q, dmp1, dmq1, iqmp))
    return encode_pem("RSA PRIVATE KEY", element(SEQUENCE, *numbers))


def rsa_key_of(p: int, q: int, e: int = 65537) -> tuple[bytes, bytes]:
    """Return the private RSA key with two factors in PEM, and its public key in DER."""
    d = pow(e, -1, (p - 1) * (q - 1))
    return rsa_private_key(p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p)), rsa_public_key(p * q, e)


def rsa_public_key(n: int, e: int) -> bytes:
    """Return a public RSA key in DER, as in a certificate."""
    return element(SEQUENCE, RSA_KEY, element(BIT_STRING, b"\0", element(SEQUENCE, integer(n), integer(e))))


def dsa_private_key(p: int, q: int, g: int, x: int) -> bytes:
    """Return a private DSA key in PEM."""
    parameters = element(SEQUENCE, *map(integer, (p, q, g)))
    der = element(SEQUENCE, integer(0), element(SEQUENCE, DSA_KEY, parameters), element(OCTET_STRING, integer(x)))
    return encode_pem("PRIVATE KEY", der)


def certificate(public_key: bytes = b"", names: bytes = b"") -> bytes:
    """Return a certificate in PEM, with another public key or other names in DER.

    The signature is invalid.
    """
    now = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(_NAME, _NAME, _KEY.public_key(), 1, now, now)
    signed = builder.sign(_KEY, hashes.SHA256())
    own_key = _KEY.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    content = _content(signed.tbs_certificate_bytes)
    content = content.replace(own_key, public_key or own_key)
    content = content.replace(_NAME.public_bytes(), names or _NAME.public_bytes())
    return _sign("CERTIFICATE", content, signed.signature)


def revocation_list(count: int) -> bytes:
    """Return a certificate revocation list in PEM that contains the serial number 1 repeatedly."""
    now = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateRevocationListBuilder(_NAME, now, now)
    signed = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(1, now).build()).sign(_KEY, hashes.SHA256())
    entry = element(SEQUENCE, integer(1), element(UTC_TIME, b"260101000000Z"))
    content = _content(signed.tbs_certlist_bytes)
    return _sign(
        "X509 CRL", content.replace(element(SEQUENCE, entry), element(SEQUENCE, entry * count)), signed.signature
    )


def name_of(count: int) -> bytes:
    """Return a name with a number of short attributes in DER."""
    attribute = element(SEQUENCE, bytes.fromhex("06012a"), element(UTF8_STRING))
    return element(SEQUENCE, element(SET, attribute) * count)


def _content(signed: bytes) -> bytes:
    size = signed[1]
    return signed[2 + (size & 0x7F if size & 0x80 else 0) :]


def _sign(label: str, content: bytes, signature: bytes) -> bytes:
    return encode_pem(
        label, element(SEQUENCE, element(SEQUENCE, content), _SIGNED_WITH, element(BIT_STRING, b"\0", signature))
    )
