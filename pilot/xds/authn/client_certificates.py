"""Authentication by client certificates, which TLS verifies or a gateway forwards.

A gateway that terminates TLS forwards the certificate in the header x-forwarded-client-cert.
https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/headers#x-forwarded-client-cert
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence

from cryptography import x509

from pilot.lib.addresses import find_address
from pilot.lib.flags import FlagError
from pilot.lib.spiffe import PREFIX
from pilot.xds.authn.identity import Caller, IdentityError, NoCredentials

HEADER = "x-forwarded-client-cert"
_PAIR = re.compile(r'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^,;"\s]*(?:\s+[^,;"\s]+)*)\s*(;|,|$)')


def names_in_certificate(certificate: bytes, trust_domain: str) -> tuple[str, ...]:
    """Return all names in a DER certificate.

    Raise IdentityError unless the certificate has exactly one URI and this URI is an identity in the trust domain.
    """
    try:
        names = (
            x509.load_der_x509_certificate(certificate)
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value
        )
    except (ValueError, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise IdentityError(f"cannot read the names in the certificate: {error}") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise IdentityError(f"the certificate has {len(uris)} URIs; expected one")
    if uris[0].removeprefix(PREFIX).partition("/")[0] != trust_domain or not uris[0].startswith(PREFIX):
        raise IdentityError(f"{uris[0]} is not in the trust domain {trust_domain}")
    others = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    return (*uris, *others)


async def identify_by_certificate(caller: Caller) -> Sequence[str]:
    """Return the names in the caller's verified certificate. Raise IdentityError if the caller has none."""
    if not caller.certificate_names:
        raise NoCredentials("there is no client certificate")
    return caller.certificate_names


class ForwardedCertificates:
    """Authenticator for callers behind a gateway. The gateway must be on this machine or have an address in `blocks`.

    Other callers are rejected. Raise FlagError if a block is invalid.
    """

    def __init__(self, blocks: Iterable[str]) -> None:
        try:
            self._blocks = [ipaddress.ip_network(text.strip(), strict=False) for text in blocks if text.strip()]
        except ValueError as error:
            raise FlagError(f"TRUSTED_GATEWAY_CIDR: {error}") from None

    async def identify(self, caller: Caller) -> Sequence[str]:
        """Return the names in the forwarded certificates.

        Raise IdentityError if no names were forwarded, or if the caller is not a trusted gateway.
        """
        header = caller.header(HEADER)
        if not header:
            raise NoCredentials("no certificate was forwarded")
        if not self._is_trusted(caller.address):
            raise IdentityError(f"{caller.address} is not a trusted gateway")
        names = tuple(dict.fromkeys(_names(header)))
        if not names:
            raise IdentityError("the forwarded certificates have no names")
        return names

    def _is_trusted(self, peer: str) -> bool:
        address = find_address(peer)
        return address is not None and (address.is_loopback or any(address in block for block in self._blocks))


def _names(header: str) -> Iterator[str]:
    """Yield the URIs, DNS names and common names in the header. Raise IdentityError if the header is malformed."""
    for key, value in _pairs(header):
        if key in ("uri", "dns") and value:
            yield value
        elif key == "subject" and value:
            yield from _common_names(value)


def _pairs(header: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of all certificates in the header."""
    position = 0
    while position < len(header):
        match = _PAIR.match(header, position)
        if match is None:
            raise IdentityError(f"{HEADER} is malformed at character {position}")
        key, value, _ = match.groups()
        yield key.lower(), value[1:-1].replace(r"\"", '"') if value.startswith('"') else value
        position = match.end()


def _common_names(subject: str) -> Iterator[str]:
    """Yield the common names in an RFC 4514 subject. An invalid subject has none."""
    try:
        name = x509.Name.from_rfc4514_string(subject)
    except ValueError:
        return
    for attribute in name.get_attributes_for_oid(x509.NameOID.COMMON_NAME):
        yield str(attribute.value)
