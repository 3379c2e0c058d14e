"""Decides which addresses a URL of a user may lead to.

Whoever may write configuration must not be able to have the control plane, or the companion of a proxy, ask what only it can reach: other
services' private ports, the metadata of the cloud, itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Block = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class BlockedAddress(OSError):
    """A connection that is not made, because of the address that it would lead to."""


class AddressRules:
    """What may be asked: every address that is public, and the private ones of `allowed`, but none of `blocked`. ValueError for what is no
    block of addresses."""

    def __init__(self, allowed: Iterable[str] = (), blocked: Iterable[str] = ()) -> None:
        self._allowed: list[Block] = [
            ipaddress.ip_network(text.strip(), strict=False) for text in allowed if text.strip()
        ]
        self._blocked: list[Block] = [
            ipaddress.ip_network(text.strip(), strict=False) for text in blocked if text.strip()
        ]

    def check(self, text: str) -> None:
        """Raises BlockedAddress if an address may not be asked."""
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        if any(address in block for block in self._blocked):
            raise BlockedAddress(f"{address} is in a blocked range")
        if address.is_link_local:
            raise BlockedAddress(f"{address} is link-local")
        if not any(address in block for block in self._allowed) and (not address.is_global or address.is_multicast):
            raise BlockedAddress(f"{address} is not a public address")


def _plain(address: Address) -> Address:
    """Returns the IPv4 address that an IPv6 address stands for, else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
