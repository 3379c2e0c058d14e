"""Client certificates of which a gateway tells that ended the caller's TLS itself: the header x-forwarded-client-cert.

https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/headers#x-forwarded-client-cert
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence

from cryptography import x509

from pilot.lib.addresses import find_address
from pilot.lib.flags import FlagError
from pilot.xds.identity import Caller, IdentityError

HEADER = "x-forwarded-client-cert"
_PAIR = re.compile(r'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^,;"]*)\s*(;|,|$)')


class ForwardedCertificates:
    """An authenticator of callers that come through a gateway: from one of these blocks of addresses, or from this machine. Nobody else is believed
    what the header says. FlagError where a text is no block."""

    def __init__(self, blocks: Iterable[str]) -> None:
        try:
            self._blocks = [ipaddress.ip_network(text.strip(), strict=False) for text in blocks if text.strip()]
        except ValueError as error:
            raise FlagError(f"TRUSTED_GATEWAY_CIDR: {error}") from None

    async def identify(self, caller: Caller) -> Sequence[str]:
        """Returns the names in the certificates of which the gateway tells. IdentityError where the caller is no gateway, or tells of none."""
        header = caller.header(HEADER)
        if not header:
            raise IdentityError("no certificate was forwarded")
        if not self._is_trusted(caller.address):
            raise IdentityError(f"{caller.address} is no gateway whose header is believed")
        names = tuple(dict.fromkeys(_names(header)))
        if not names:
            raise IdentityError("the forwarded certificates have no names")
        return names

    def _is_trusted(self, where: str) -> bool:
        address = find_address(where)
        return address is not None and (address.is_loopback or any(address in block for block in self._blocks))


def _names(header: str) -> Iterator[str]:
    """Yields the URIs, DNS names and common names in a header. IdentityError where it cannot be read."""
    for key, value in _pairs(header):
        if key in ("uri", "dns") and value:
            yield value
        elif key == "subject" and value:
            yield from _common_names(value)


def _pairs(header: str) -> Iterator[tuple[str, str]]:
    """Yields what a header says, of all its certificates."""
    at = 0
    while at < len(header):
        found = _PAIR.match(header, at)
        if found is None:
            raise IdentityError(f"{HEADER} cannot be read from character {at} on")
        key, value, _ = found.groups()
        yield key.lower(), value[1:-1].replace(r"\"", '"') if value.startswith('"') else value
        at = found.end()


def _common_names(subject: str) -> Iterator[str]:
    """Yields the common names in a subject; none of one that is not as RFC 4514 has it."""
    try:
        found = x509.Name.from_rfc4514_string(subject)
    except ValueError:
        return
    for attribute in found.get_attributes_for_oid(x509.NameOID.COMMON_NAME):
        yield str(attribute.value)
