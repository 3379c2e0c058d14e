"""Rules for the addresses to which URLs in users' configuration may resolve.

They prevent server-side request forgery. Configuration must not make the control plane or an agent connect to private
ports of other services, to a cloud's metadata service, or to itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Block = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215: the position of the IPv4 address is unknown
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291 section 2.5.5.1
_AZURE_PLATFORM = ipaddress.IPv4Address("168.63.129.16")  # the host agent of Azure's virtual machines


class BlockedAddress(OSError):
    """The address of a connection is not allowed."""


class AddressRules:
    """Rules that allow public addresses and the private CIDR blocks in `allowed`, but no address in `blocked`.

    Raise ValueError if a string is not a CIDR block.
    """

    def __init__(self, allowed: Iterable[str] = (), blocked: Iterable[str] = ()) -> None:
        self._allowed: list[Block] = [
            ipaddress.ip_network(text.strip(), strict=False) for text in allowed if text.strip()
        ]
        self._blocked: list[Block] = [
            ipaddress.ip_network(text.strip(), strict=False) for text in blocked if text.strip()
        ]

    def check(self, text: str) -> None:
        """Raise BlockedAddress if an address is not allowed."""
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        if any(address in block for block in self._blocked):
            raise BlockedAddress(f"{address} is in a blocked range")
        if address.is_link_local:
            raise BlockedAddress(f"{address} is link-local")
        if not any(address in block for block in self._allowed) and not _is_public(address):
            raise BlockedAddress(f"{address} is not a public address")


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and address != _AZURE_PLATFORM and address not in _LOCAL_NAT64


def _plain(address: Address) -> Address:
    """Return the IPv4 address that is embedded in an IPv6 address. Return any other address unchanged."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):  # not :: and ::1
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
