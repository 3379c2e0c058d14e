"""An xDS resource, serialized once and shared by every proxy that gets it."""
from __future__ import annotations

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

    `warms` is the name of the ClusterLoadAssignment that Envoy waits for after it takes this resource, or "".
    """

    __slots__ = ("any", "name", "warms")

    def __init__(self, name: str, type_url: str, value: bytes, warms: str = "") -> None:
        head = _ANY_HEADS.get(type_url)
        if head is None:
            head = _ANY_HEADS[type_url] = length_delimited(1, type_url.encode())
        self.name, self.warms = name, warms
        self.any = b"".join((head, b"\x12", varint(len(value)), value))

    @classmethod
    def of(cls, type_url: str, message: Any, name: str | None = None, warms: str = "") -> Resource:
        """Of a protobuf message; map fields in one order, so that equal messages are equal bytes."""
        return cls(message.name if name is None else name, type_url, message.SerializeToString(deterministic=True), warms)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Resource) and self.any == other.any and self.warms == other.warms)

    def __hash__(self) -> int:
        return hash(self.any)

    def __repr__(self) -> str:
        return f"<Resource {self.name} {len(self.any)} bytes>"
