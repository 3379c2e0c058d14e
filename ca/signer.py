"""A signing certificate with its key, and the leaves that it issues.

Shapes of leaves: https://istio.io/latest/docs/concepts/security/#pki and the SPIFFE X.509-SVID specification.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from ca.csr import SigningRequest
from ca.errors import SigningError
from ca.pem import PrivateKey, bundle_pem, certificate_pem

CLOCK_SKEW = datetime.timedelta(minutes=2)
LONGEST_COMMON_NAME = 64
"""Characters: the upper bound of X.520."""
_EMPTY = x509.Name([])
_LEAF = x509.BasicConstraints(ca=False, path_length=None)
_SERVER_AND_CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
_CURVE_HASHES: dict[str, hashes.HashAlgorithm] = {"secp384r1": hashes.SHA384(), "secp521r1": hashes.SHA512()}


def key_usage(*names: str) -> x509.KeyUsage:
    """Returns the key usage with these bits, named as in `x509.KeyUsage`, and no other."""
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
    )
    return x509.KeyUsage(**{name: name in names for name in every}, encipher_only=False, decipher_only=False)


_LEAF_USAGE = key_usage("digital_signature", "key_encipherment")


def hash_of(key: PrivateKey) -> Any:
    """Returns the digest that certificates are signed with by a key; None for Ed25519, which has its own."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return _CURVE_HASHES.get(key.curve.name, hashes.SHA256())
    return hashes.SHA256()


def general_name(identity: str) -> x509.GeneralName:
    """Returns an identity as a subject alternative name: an IP address, a URI where it is a SPIFFE id, otherwise a DNS name."""
    if identity.startswith("spiffe://"):
        return x509.UniformResourceIdentifier(identity)
    try:
        return x509.IPAddress(ipaddress.ip_address(identity))
    except ValueError:
        return x509.DNSName(identity)


class Signer(NamedTuple):
    """`intermediates` are the certificates between a leaf and the roots, the signing one first; none where it is a root itself.
    `roots` is never empty."""

    certificate: x509.Certificate
    key: PrivateKey
    intermediates: tuple[x509.Certificate, ...]
    roots: tuple[x509.Certificate, ...]

    @property
    def roots_pem(self) -> bytes:
        """The bundle that peers are verified with."""
        return bundle_pem(self.roots)

    @property
    def expires(self) -> datetime.datetime:
        """When the first of the certificates above a leaf ends, in UTC; a leaf is not valid beyond the signing one."""
        return min(c.not_valid_after_utc for c in (self.certificate, *self.intermediates))

    def issue(
        self, request: SigningRequest, identities: Sequence[str], ttl: datetime.timedelta, now: datetime.datetime
    ) -> x509.Certificate:
        """Returns a leaf for the identities, which are at least one, valid from two minutes before `now` for `ttl` after it, or until the
        signing certificate ends. SigningError CERT_GEN_ERROR where that has ended, or where an identity cannot be a name."""
        end = min(now + ttl, self.certificate.not_valid_after_utc)
        if end <= now:
            raise SigningError("CERT_GEN_ERROR", f"the signing certificate ended at {end:%Y-%m-%dT%H:%M:%SZ}")
        try:
            names = x509.SubjectAlternativeName([general_name(identity) for identity in identities])
            builder = x509.CertificateBuilder(
                self.certificate.subject,
                _subject(request, identities[0]),
                request.public_key,
                x509.random_serial_number(),
                now - CLOCK_SKEW,
                end,
            )
            for extension, critical in ((_LEAF_USAGE, True), (_SERVER_AND_CLIENT, False), (_LEAF, True), (names, True)):
                builder = builder.add_extension(extension, critical)
            if (issuer_key_id := _subject_key_id(self.certificate)) is not None:
                builder = builder.add_extension(x509.AuthorityKeyIdentifier(issuer_key_id, None, None), critical=False)
            return builder.sign(self.key, hash_of(self.key))
        except (ValueError, TypeError, IndexError) as error:
            raise SigningError("CERT_GEN_ERROR", f"no certificate can be made for {identities!r}: {error}") from error

    def chain(self, leaf: x509.Certificate) -> list[str]:
        """Returns the leaf, its intermediates and, as one text, the bundle of roots, each in PEM."""
        return [*(certificate_pem(c).decode() + "\n" for c in (leaf, *self.intermediates)), self.roots_pem.decode()]


def _subject(request: SigningRequest, identity: str) -> x509.Name:
    if not request.has_common_name or len(identity) > LONGEST_COMMON_NAME:
        return _EMPTY
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, identity)])


def _subject_key_id(certificate: x509.Certificate) -> bytes | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except x509.ExtensionNotFound:
        return None
