"""A registration authority, which requests workload certificates from an external signer.

The signer issues what the CSR requests, so the CSR may request only the caller's verified identity.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence

from cryptography import x509

from ca.csr import certificate_names, check_requested_names, decode_csr
from ca.errors import KeyMaterialError, SigningError
from ca.pem import bundle_pem, certificate_pem, load_bundle
from ca.verify import leads_to

Ask = Callable[[bytes, str, int], Awaitable[bytes]]
"""Sends a CSR in PEM to a signer. The lifetime is in seconds, and 0 is the signer's default.

Returns a certificate chain in PEM with the leaf first, or raises SigningError.
"""
Roots = Callable[[str], Sequence[x509.Certificate]]
"""Returns the roots of a signer. The result is empty if they are not known."""


class RegistrationAuthority:
    """Requests certificates from external signers.

    If a request names a signer, the full name of that signer is `domain`/NAME. Otherwise, `signer` issues the
    certificate.
    """

    def __init__(self, ask: Ask, signer: str, domain: str, longest_ttl: datetime.timedelta, roots: Roots) -> None:
        self._ask, self._signer, self._domain, self._longest_ttl, self._roots = ask, signer, domain, longest_ttl, roots

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Return a leaf for one of the identities, its intermediates, and the bundle of roots, all in PEM.

        Raise SigningError if the CSR requests another name, if the lifetime is too long, or if the signer issues no
        usable certificate.
        """
        key = decode_csr(csr).public_key
        request = check_requested_names(csr, identities)
        if seconds > self._longest_ttl.total_seconds():
            raise SigningError(
                "TTL_ERROR",
                f"the requested lifetime of {seconds} s exceeds {self._longest_ttl.total_seconds():.0f} s",
            )
        name = self._name(signer)
        try:
            chain = load_bundle(await self._ask(request, name, max(seconds, 0)), name)
        except KeyMaterialError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error
        roots = tuple(self._roots(name)) or tuple(one for one in chain if one.issuer == one.subject)
        leaf, above = chain[0], tuple(one for one in chain[1:] if one not in roots)
        if leaf.public_key() != key or not certificate_names(leaf) or certificate_names(leaf) - set(identities):
            raise SigningError("CERT_GEN_ERROR", f"{name} issued a certificate that does not match the request")
        if not leads_to(leaf, above, roots):
            raise SigningError("CERT_GEN_ERROR", f"the certificate issued by {name} does not chain to a known root")
        return [*(certificate_pem(one).decode() + "\n" for one in (leaf, *above)), bundle_pem(roots).decode()]

    def _name(self, signer: str) -> str:
        """Return the full name of a signer, or the name of the mesh's signer if `signer` is ""."""
        if signer and not self._domain:
            raise SigningError(
                "CERT_GEN_ERROR", f"the request names the signer {signer!r}, but CERT_SIGNER_DOMAIN is not set"
            )
        if signer:
            return f"{self._domain}/{signer}"
        if not self._signer:
            raise SigningError("CERT_GEN_ERROR", "the request names no signer, and K8S_SIGNER is not set")
        return self._signer
