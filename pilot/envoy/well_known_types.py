"""Small messages that many other messages contain: Any, TypedStruct, Duration and CidrRange."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from envoy.config.core.v3 import address_pb2
from google.protobuf import any_pb2, duration_pb2
from udpa.type.v1 import typed_struct_pb2

TYPE_PREFIX = "type.googleapis.com/"
_LENGTH = re.compile(r"[0-9]{1,3}")
ZERO_DURATION = duration_pb2.Duration()
"""A shared message that must be copied and never modified."""


def pack(message: Any) -> any_pb2.Any:
    """Return a message as an Any. Map fields are sorted, so equal messages have equal bytes."""
    return any_pb2.Any(
        type_url=TYPE_PREFIX + message.DESCRIPTOR.full_name, value=message.SerializeToString(deterministic=True)
    )


def pack_struct(full_name: str, fields: Mapping[str, Any]) -> any_pb2.Any:
    """Return a message as a TypedStruct in an Any, for types that only Istio's build of Envoy defines."""
    struct = typed_struct_pb2.TypedStruct(type_url=TYPE_PREFIX + full_name)
    struct.value.SetInParent()
    struct.value.update(dict(fields))
    return pack(struct)


def build_duration(nanoseconds: int) -> duration_pb2.Duration:
    """Return a Duration. Both fields of a negative duration are negative, as protobuf requires."""
    seconds, nanos = divmod(abs(nanoseconds), 1_000_000_000)
    return (
        duration_pb2.Duration(seconds=seconds, nanos=nanos)
        if nanoseconds >= 0
        else duration_pb2.Duration(seconds=-seconds, nanos=-nanos)
    )


def build_cidr(text: str) -> address_pb2.CidrRange | None:
    """Return the CIDR range of an IP address or network, or None if `text` is neither."""
    try:
        address, bits = _parse_network(text)
    except ValueError:
        return None
    cidr = address_pb2.CidrRange(address_prefix=str(address))
    cidr.prefix_len.value = bits
    return cidr


def _parse_network(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Return an address and the length of its prefix, which may be a netmask. Raise ValueError if it is invalid."""
    host, slash, length = text.partition("/")
    if "%" in host or (slash and _LENGTH.fullmatch(length) is None):
        network = ipaddress.ip_interface(text)
        return network.ip, network.network.prefixlen
    address = ipaddress.ip_address(host)  # in a third of the time
    bits = int(length) if slash else address.max_prefixlen
    if bits > address.max_prefixlen:
        raise ValueError(f"the prefix of {text} is too long")
    return address, bits
