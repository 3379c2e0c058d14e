"""Checks that a signing certificate matches its key, its chain and the roots."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509

from ca.errors import KeyMaterialError
from ca.signer import Signer


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def check_signer(signer: Signer, where: str) -> None:
    """Raise KeyMaterialError with `where` if the signer is unusable.

    The certificate must be allowed to sign, the key must match it, and its chain must end at one of the roots.
    """
    if not is_authority(signer.certificate):
        raise KeyMaterialError(f"{where}: the signing certificate is not a CA (basicConstraints CA:TRUE)")
    if signer.certificate.public_key() != signer.key.public_key():
        raise KeyMaterialError(f"{where}: the private key does not match the signing certificate")
    if not leads_to(signer.certificate, signer.intermediates, signer.roots):
        raise KeyMaterialError(
            f"{where}: the chain of the signing certificate does not end at a certificate in the root bundle"
        )


def leads_to(
    certificate: x509.Certificate, intermediates: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> bool:
    """Return whether a certificate chains to one of the roots. The intermediates may be in any order."""
    at, candidates = certificate, list(intermediates)
    while True:
        if at in roots or any(_issued(root, at) for root in roots):
            return True
        issuer = next((c for c in candidates if c != at and _issued(c, at)), None)
        if issuer is None:
            return False
        candidates.remove(issuer)
        at = issuer


def _issued(issuer: x509.Certificate, subject: x509.Certificate) -> bool:
    try:
        subject.verify_directly_issued_by(issuer)
    except Exception:  # ValueError, TypeError, InvalidSignature and UnsupportedAlgorithm all mean that it did not
        return False
    return True
