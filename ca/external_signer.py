"""Has a signer of somebody else issue the certificates of those who have proved who they are: a registration authority.

What such a signer issues is what the request asks for, so that a request must ask for nothing but what its caller has proved.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ca.csr import decode_csr
from ca.errors import KeyMaterialError, SigningError
from ca.pem import bundle_pem, certificate_pem, load_bundle
from ca.verify import leads_to

Ask = Callable[[bytes, str, int], Awaitable[bytes]]
"""Takes a request in PEM, the name of a signer, and seconds of life, 0 for as many as it likes; returns a chain in PEM, the leaf first. SigningError
where there is none."""
Roots = Callable[[str], Sequence[x509.Certificate]]
"""Returns the roots of a signer by its name; none where they are not known."""
_ORGANIZATION = x509.NameOID.ORGANIZATION_NAME


class RegistrationAuthority:
    """Asks `signer`, or another one of `domain` whose name a request brings."""

    def __init__(self, ask: Ask, signer: str, domain: str, longest_ttl: datetime.timedelta, roots: Roots) -> None:
        self._ask, self._signer, self._domain, self._longest_ttl, self._roots = ask, signer, domain, longest_ttl, roots

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Returns a leaf for the identities, its intermediates and, as one text, the bundle of roots, each in PEM. SigningError where the request
        asks for something else, or the signer issues nothing that could be used."""
        key = decode_csr(csr).public_key
        request = checked(csr, identities)
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
        if leaf.public_key() != key or not _names(leaf) or _names(leaf) - set(identities):
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


def checked(csr: bytes, identities: Sequence[str]) -> bytes:
    """Returns a request, which is known to be one, in PEM without what may stand around it. SigningError CSR_ERROR unless it asks for one of the
    identities and for nothing else."""
    request = x509.load_pem_x509_csr(csr)
    try:
        names = _names(request)
    except (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise SigningError("CSR_ERROR", f"what the request asks for cannot be read: {error}") from error
    asked = [
        extension.oid.dotted_string
        for extension in request.extensions
        if not isinstance(extension.value, x509.SubjectAlternativeName)
    ]
    if asked:
        raise SigningError("CSR_ERROR", f"the request asks for extensions other than names: {', '.join(asked)}")
    if any(attribute.oid != _ORGANIZATION for attribute in request.subject):
        raise SigningError("CSR_ERROR", f"the request asks for the subject {request.subject.rfc4514_string()}")
    if len(names) != 1 or not names <= set(identities):
        raise SigningError(
            "CSR_ERROR",
            f"the request asks for {', '.join(sorted(names)) or 'no identity'}, proved is {', '.join(identities)}",
        )
    return request.public_bytes(serialization.Encoding.PEM)


def _names(signed: x509.CertificateSigningRequest | x509.Certificate) -> set[str]:
    """Returns the names of a request or a certificate: URIs as they are, those of other kinds such that they are nobody's identity."""
    try:
        found = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {name.value if isinstance(name, x509.UniformResourceIdentifier) else repr(name) for name in found}
