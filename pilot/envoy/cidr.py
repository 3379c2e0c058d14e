"""Builds ranges of IP addresses."""

from __future__ import annotations

import ipaddress

from envoy.config.core.v3 import address_pb2


def build_cidr(text: str) -> address_pb2.CidrRange | None:
    """Returns the range of an address or a network; None where it is neither. An address that stands for all is no range."""
    try:
        network = ipaddress.ip_interface(text)
    except ValueError:
        return None
    cidr = address_pb2.CidrRange(address_prefix=str(network.ip))
    cidr.prefix_len.value = network.network.prefixlen
    return cidr
