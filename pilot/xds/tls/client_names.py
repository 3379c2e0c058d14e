"""Reads who a client is out of its certificate, once TLS has verified that our authority issued it."""

from __future__ import annotations

from cryptography import x509

from pilot.lib.spiffe import PREFIX
from pilot.xds.identity import IdentityError


def names_in_certificate(certificate: bytes, trust_domain: str) -> tuple[str, ...]:
    """Returns all names of a certificate (DER). IdentityError unless exactly one of them is a URI, which is an identity of the trust domain."""
    try:
        found = (
            x509.load_der_x509_certificate(certificate)
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value
        )
    except (ValueError, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise IdentityError(f"the names of the certificate cannot be read: {error}") from None
    uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise IdentityError(f"the certificate has {len(uris)} URIs, not one")
    if uris[0].removeprefix(PREFIX).partition("/")[0] != trust_domain or not uris[0].startswith(PREFIX):
        raise IdentityError(f"{uris[0]} is not of the trust domain {trust_domain}")
    others = (*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress)))
    return (*uris, *others)
