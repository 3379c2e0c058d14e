"""Has a signer of somebody else issue the certificates of those who have proved who they are: a registration authority.

What such a signer issues is what the request asks for, so that a request must ask for nothing but what its caller has
proved.
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
"""Takes a request in PEM, the name of a signer, and seconds of life, 0 for as many as it likes; returns a chain in PEM,
the leaf first. SigningError where there is none."""
Roots = Callable[[str], Sequence[x509.Certificate]]
"""Returns the roots of a signer by its name; none where they are not known."""


class RegistrationAuthority:
    """Asks `signer`, or another one of `domain` whose name a request brings."""

    def __init__(self, ask: Ask, signer: str, domain: str, longest_ttl: datetime.timedelta, roots: Roots) -> None:
        self._ask, self._signer, self._domain, self._longest_ttl, self._roots = ask, signer, domain, longest_ttl, roots

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Returns a leaf for the identities, its intermediates and, as one text, the bundle of roots, each in PEM.
        SigningError where the request asks for something else, or the signer issues nothing that could be used."""
        key = decode_csr(csr).public_key
        request = check_requested_names(csr, identities)
        if seconds > self._longest_ttl.total_seconds():
            raise SigningError(
                "TTL_ERROR",
                f"a life of {seconds} s is asked for, the longest is {self._longest_ttl.total_seconds():.0f} s",
            )
        name = self._name(signer)
        try:
            chain = load_bundle(await self._ask(request, name, max(seconds, 0)), name)
        except KeyMaterialError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error
        roots = tuple(self._roots(name)) or tuple(one for one in chain if one.issuer == one.subject)
        leaf, above = chain[0], tuple(one for one in chain[1:] if one not in roots)
        if leaf.public_key() != key or not certificate_names(leaf) or certificate_names(leaf) - set(identities):
            raise SigningError(
                "CERT_GEN_ERROR", f"{name} has issued a certificate for something else than what was asked for"
            )
        if not leads_to(leaf, above, roots):
            raise SigningError(
                "CERT_GEN_ERROR", f"the certificate that {name} has issued does not lead to a root that is known"
            )
        return [*(certificate_pem(one).decode() + "\n" for one in (leaf, *above)), bundle_pem(roots).decode()]

    def _name(self, signer: str) -> str:
        """Returns the whole name of a signer, "" for that of the mesh."""
        if signer and not self._domain:
            raise SigningError(
                "CERT_GEN_ERROR", f"the signer {signer!r} is asked for, and CERT_SIGNER_DOMAIN does not say whose it is"
            )
        if signer:
            return f"{self._domain}/{signer}"
        if not self._signer:
            raise SigningError(
                "CERT_GEN_ERROR", "no signer is asked for, and K8S_SIGNER does not name the one of the mesh"
            )
        return self._signer
