"""Holds an xDS resource, serialized once and shared by every proxy that gets it."""

from __future__ import annotations

import hashlib
from typing import Any

_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """Returns a protobuf varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_delimited(number: int, payload: bytes) -> bytes:
    """Returns a protobuf field of wire type 2: a message, string or bytes."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the varint at a position, and the position behind it."""
    behind = _behind_varint(data, at)
    return sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data[at:behind])), behind


def _behind_varint(data: bytes, at: int) -> int:
    """Returns the position behind the varint at a position."""
    while data[at] > 0x7F:
        at += 1
    return at + 1


_ANY_HEADS: dict[str, bytes] = {}


class Resource:
    """Holds a named message as a serialized google.protobuf.Any. Resources are equal where their bytes are.

    `pieces` joined are `frame`: the Any as field 2, which is what both a DiscoveryResponse and a (delta) Resource hold it in; `head`
    goes before it to make it a resource of a DeltaDiscoveryResponse. https://protobuf.dev/programming-guides/encoding/
    `size` is the length of the frame. Large parts of large resources are pieces that they share, copied only into responses.
    `warms` is the name of the ClusterLoadAssignment that Envoy waits for after it takes this resource, or "". `version` tells its content from
    others under its name, "" where nobody asks; `aliases` are other names that it is asked for by.
    """

    __slots__ = ("aliases", "head", "name", "pieces", "size", "version", "warms")

    def __init__(
        self,
        name: str,
        type_url: str,
        value: bytes,
        warms: str = "",
        more: tuple[bytes, ...] = (),
        version: str = "",
        aliases: tuple[str, ...] = (),
    ) -> None:
        """`more`: pieces of the serialized message that follow `value`."""
        head = _ANY_HEADS.get(type_url)
        if head is None:
            head = _ANY_HEADS[type_url] = length_delimited(1, type_url.encode())
        total = len(value) + sum(map(len, more))
        size = varint(total)
        length = len(head) + 1 + len(size) + total
        self.name, self.warms, self.version, self.aliases = name, warms, version, aliases
        self.pieces = (b"".join((b"\x12", varint(length), head, b"\x12", size, value)), *more)
        self.size = len(self.pieces[0]) + total - len(value)
        named = length_delimited(3, name.encode()) + (length_delimited(1, version.encode()) if version else b"")
        named += b"".join(length_delimited(4, alias.encode()) for alias in aliases)
        self.head = b"".join((b"\x12", varint(len(named) + self.size), named))

    @property
    def frame(self) -> bytes:
        """Returns the pieces joined."""
        return b"".join(self.pieces)

    @property
    def any(self) -> bytes:
        """Returns the serialized Any alone."""
        frame = self.frame
        return frame[_behind_varint(frame, 1) :]

    @property
    def message(self) -> tuple[bytes, ...]:
        """Returns the serialized message alone, in its pieces, which are messages of its type too."""
        first, *more = self.pieces
        size, at = _read_varint(first, _behind_varint(first, 1) + 1)
        return (first[_behind_varint(first, at + size + 1) :], *more)

    @classmethod
    def of(cls, type_url: str, message: Any, name: str | None = None, warms: str = "") -> Resource:
        """Returns the resource of a protobuf message; its map fields are in one order, so that equal messages are equal bytes."""
        return cls(
            message.name if name is None else name, type_url, message.SerializeToString(deterministic=True), warms
        )

    @classmethod
    def versioned(cls, type_url: str, message: Any, name: str, aliases: tuple[str, ...] = ()) -> Resource:
        """Returns the same with a version, which is equal wherever the message is: in another process too."""
        value = message.SerializeToString(deterministic=True)
        return cls(name, type_url, value, version=hashlib.blake2b(value, digest_size=8).hexdigest(), aliases=aliases)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Resource) or self.size != other.size or self.warms != other.warms:
            return False
        return self.pieces == other.pieces or (not _cut_alike(self, other) and self.frame == other.frame)

    def __hash__(self) -> int:
        return hash(self.frame)

    def __repr__(self) -> str:
        return f"<Resource {self.name} {self.size} bytes>"


def _cut_alike(one: Resource, other: Resource) -> bool:
    """Returns whether their pieces are of the same lengths, so that they are equal only where each piece is."""
    return [*map(len, one.pieces)] == [*map(len, other.pieces)]
