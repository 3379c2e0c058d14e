"""Signers: a signing certificate with its key, and the leaf certificates that the signer issues.

https://istio.io/latest/docs/concepts/security/#pki
https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md
"""

from __future__ import annotations

import datetime
import functools
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

CLOCK_SKEW = datetime.timedelta(minutes=15)
"""Maximum time by which certificates are backdated, so that peers whose clocks are slow accept them."""
MAX_COMMON_NAME_LENGTH = 64
"""Maximum number of characters in a common name, as X.520 specifies."""
_EMPTY = x509.Name([])
_LEAF = x509.BasicConstraints(ca=False, path_length=None)
_SERVER_AND_CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
_CURVE_HASHES: dict[str, hashes.HashAlgorithm] = {"secp384r1": hashes.SHA384(), "secp521r1": hashes.SHA512()}


def key_usage(*names: str) -> x509.KeyUsage:
    """Return a key usage with only the named bits set. The names are those of the arguments of `x509.KeyUsage`."""
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
    """Return the hash algorithm for signatures with a key. Return None for Ed25519, which has its own."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return _CURVE_HASHES.get(key.curve.name, hashes.SHA256())
    return hashes.SHA256()


def general_name(identity: str) -> x509.GeneralName:
    """Return an identity as a subject alternative name: a URI for a SPIFFE ID, an IP address, or else a DNS name."""
    if identity.startswith("spiffe://"):
        return x509.UniformResourceIdentifier(identity)
    try:
        return x509.IPAddress(ipaddress.ip_address(identity))
    except ValueError:
        return x509.DNSName(identity)


class Signer(NamedTuple):
    """A signing certificate with its key and chain.

    - `intermediates`: the certificates between a leaf and the roots, with the signing certificate first. It is empty if
      the signing certificate is a root.
    - `roots`: the root certificates. There is at least one.
    """

    certificate: x509.Certificate
    key: PrivateKey
    intermediates: tuple[x509.Certificate, ...]
    roots: tuple[x509.Certificate, ...]

    @property
    def roots_pem(self) -> bytes:
        """The root certificates as a PEM bundle."""
        return bundle_pem(self.roots)

    @property
    def expires(self) -> datetime.datetime:
        """The earliest expiry of the signing certificate and the intermediates, in UTC."""
        return min(c.not_valid_after_utc for c in (self.certificate, *self.intermediates))

    def issue(
        self, request: SigningRequest, identities: Sequence[str], ttl: datetime.timedelta, now: datetime.datetime
    ) -> x509.Certificate:
        """Issue a leaf certificate for one or more identities.

        It is valid until `now + ttl`, but not longer than the signing certificate. It is backdated by 15 minutes, but
        at most by a tenth of its lifetime, because clients compute the time of the renewal from both dates. Raise
        SigningError with the code CERT_GEN_ERROR if the signing certificate has expired or an identity is not a valid
        name.
        """
        end = min(now + ttl, self.certificate.not_valid_after_utc)
        if end <= now:
            raise SigningError("CERT_GEN_ERROR", f"the signing certificate expired at {end:%Y-%m-%dT%H:%M:%SZ}")
        try:
            names = x509.SubjectAlternativeName([general_name(identity) for identity in identities])
            extensions: list[tuple[x509.ExtensionType, bool]] = [
                (_LEAF_USAGE, True),
                (_SERVER_AND_CLIENT, False),
                (_LEAF, True),
                (names, True),
            ]
            if (issuer_key_id := _subject_key_id(self.certificate)) is not None:
                extensions.append((x509.AuthorityKeyIdentifier(issuer_key_id, None, None), False))
            builder = x509.CertificateBuilder(
                self.certificate.subject,
                _subject(request, identities[0]),
                request.public_key,
                x509.random_serial_number(),
                now - min(CLOCK_SKEW, (end - now) / 10),
                end,
                [x509.Extension(extension.oid, critical, extension) for extension, critical in extensions],
            )
            return builder.sign(self.key, hash_of(self.key))
        except (ValueError, TypeError, IndexError) as error:
            raise SigningError("CERT_GEN_ERROR", f"cannot issue a certificate for {identities!r}: {error}") from error

    def chain(self, leaf: x509.Certificate) -> list[str]:
        """Return the leaf, each intermediate, and the bundle of roots, all in PEM."""
        return [_block(leaf), *_issuers_pem(self.intermediates, self.roots)]


@functools.lru_cache(4)
def _issuers_pem(intermediates: tuple[x509.Certificate, ...], roots: tuple[x509.Certificate, ...]) -> Sequence[str]:
    """Return the part of a chain that all leaves of a signer have in common."""
    return *map(_block, intermediates), bundle_pem(roots).decode()


def _block(certificate: x509.Certificate) -> str:
    return certificate_pem(certificate).decode() + "\n"


def _subject(request: SigningRequest, identity: str) -> x509.Name:
    if not request.has_common_name or len(identity) > MAX_COMMON_NAME_LENGTH:
        return _EMPTY
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, identity)])


def _subject_key_id(certificate: x509.Certificate) -> bytes | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except x509.ExtensionNotFound:
        return None
