"""Self-signed roots. They are created once, and renewed with the same key before they expire."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from ca.pem import PrivateKey
from ca.signer import CLOCK_SKEW, Signer, hash_of, key_usage

_AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)


def make_root(trust_domain: str, ttl: datetime.timedelta, now: datetime.datetime, bits: int = 2048) -> Signer:
    """Return a new self-signed signer with an RSA key of `bits`. Its organization is the trust domain."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, trust_domain)])
    return sign_root(rsa.generate_private_key(65537, bits), name, ttl, now)


def sign_root(key: PrivateKey, name: x509.Name, ttl: datetime.timedelta, now: datetime.datetime) -> Signer:
    """Return a self-signed signer with an existing key."""
    public = key.public_key()
    builder = x509.CertificateBuilder(name, name, public, x509.random_serial_number(), now - CLOCK_SKEW, now + ttl)
    builder = builder.add_extension(key_usage("key_cert_sign"), critical=True).add_extension(_AUTHORITY, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    certificate = builder.sign(key, hash_of(key))
    return Signer(certificate, key, (), (certificate,))


def renewal_due(signer: Signer, now: datetime.datetime, grace_percent: float) -> bool:
    """Return whether less than `grace_percent` of the root's lifetime remains."""
    begin, end = signer.certificate.not_valid_before_utc, signer.certificate.not_valid_after_utc
    return end - now <= (end - begin) * (grace_percent / 100)


def renewed(signer: Signer, ttl: datetime.timedelta, now: datetime.datetime) -> Signer:
    """Return a signer with a new root and the additional roots of the old signer.

    The new root has the same key and name, so that certificates that the old root issued stay valid.
    """
    fresh = sign_root(signer.key, signer.certificate.subject, ttl, now)
    return fresh._replace(roots=(*fresh.roots, *(root for root in signer.roots if root != signer.certificate)))
