"""An xDS resource, serialized once and shared by every proxy that gets it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTE = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_delimited(number: int, payload: bytes) -> bytes:
    """A protobuf field of wire type 2: a message, string or bytes."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


_ANY_HEADS: dict[str, bytes] = {}


class Resource:
    """A named message as a serialized google.protobuf.Any. Equal where the bytes are.

    `frame` is the Any as field 2, which is what both a DiscoveryResponse and a (delta) Resource hold it in; `head` goes before it
    to make it a resource of a DeltaDiscoveryResponse. https://protobuf.dev/programming-guides/encoding/
    `warms` is the name of the ClusterLoadAssignment that Envoy waits for after it takes this resource, or "".
    """

    __slots__ = ("frame", "head", "name", "warms")

    def __init__(self, name: str, type_url: str, value: bytes, warms: str = "", more: Sequence[bytes] = ()) -> None:
        """`more`: pieces of the serialized message that follow `value`; large ones are copied once."""
        head = _ANY_HEADS.get(type_url)
        if head is None:
            head = _ANY_HEADS[type_url] = length_delimited(1, type_url.encode())
        total = len(value) + sum(map(len, more))
        size = varint(total)
        length = len(head) + 1 + len(size) + total
        self.name, self.warms = name, warms
        self.frame = b"".join((b"\x12", varint(length), head, b"\x12", size, value, *more))
        named = length_delimited(3, name.encode())
        self.head = b"".join((b"\x12", varint(len(named) + len(self.frame)), named))

    @property
    def any(self) -> bytes:
        """The serialized Any alone."""
        start = 2
        while self.frame[start - 1] > 0x7F:
            start += 1
        return self.frame[start:]

    @classmethod
    def of(cls, type_url: str, message: Any, name: str | None = None, warms: str = "") -> Resource:
        """Of a protobuf message; map fields in one order, so that equal messages are equal bytes."""
        return cls(message.name if name is None else name, type_url, message.SerializeToString(deterministic=True), warms)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Resource) and self.frame == other.frame and self.warms == other.warms)

    def __hash__(self) -> int:
        return hash(self.frame)

    def __repr__(self) -> str:
        return f"<Resource {self.name} {len(self.frame)} bytes>"
