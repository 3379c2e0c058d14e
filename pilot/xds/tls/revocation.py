"""Rejects client certificates that have been revoked."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509

from pilot.config.key_material import split_pem
from pilot.xds.authn.identity import IdentityError


class RevokedCertificates:
    """Revoked certificates, which the revocation lists identify by issuer and serial number.

    An entry stays in force when its list is outdated, and an issuer need not have a list. A late update of a list
    therefore does not lock out any other proxy.
    """

    def __init__(self, pem: bytes = b"") -> None:
        """Read the lists in PEM. Raise ValueError if one is invalid, or if there is content but no list."""
        lists = [x509.load_pem_x509_crl(block.content) for block in split_pem(pem) if block.label == b"X509 CRL"]
        if pem.strip() and not lists:
            raise ValueError("the certificate revocation list is not in PEM format")
        self._entries = frozenset((one.issuer.public_bytes(), entry.serial_number) for one in lists for entry in one)

    def check(self, chain: Sequence[bytes]) -> None:
        """Raise IdentityError if one of the DER certificates in a verified chain has been revoked."""
        if not self._entries:
            return
        for certificate in map(x509.load_der_x509_certificate, chain):
            if (certificate.issuer.public_bytes(), certificate.serial_number) in self._entries:
                raise IdentityError(f"certificate {certificate.serial_number:x} in the chain has been revoked")
