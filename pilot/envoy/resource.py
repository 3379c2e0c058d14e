"""An xDS resource, serialized once and shared by every proxy that receives it."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """Return a protobuf varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def length_delimited(number: int, *payload: bytes) -> bytes:
    """Return a protobuf field with wire type 2: a message, string or bytes. The payload is given in pieces."""
    return b"".join((varint(number << 3 | 2), varint(sum(map(len, payload))), *payload))


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the varint at an offset, and the offset of the next byte."""
    end = _end_of_varint(data, offset)
    return sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data[offset:end])), end


def _end_of_varint(data: bytes, offset: int) -> int:
    """Return the offset of the byte after a varint."""
    while data[offset] > 0x7F:
        offset += 1
    return offset + 1


_ANY_HEADS: dict[str, bytes] = {}


class Resource:
    """A named message, serialized as a google.protobuf.Any. Resources are equal if their bytes are equal.

    `encoded` is the concatenation of `pieces`: the Any as field 2, which is its field number in a DiscoveryResponse and
    in a (delta) Resource. https://protobuf.dev/programming-guides/encoding/

    `size` is the length of `encoded`. Large resources share pieces, which are only copied when a response is built.
    `warms` is the name of the ClusterLoadAssignment for which Envoy waits after it receives this resource, or "" if
    there is none. `version` distinguishes contents with the same name, and is "" if it is unused. `aliases` are other
    names under which the resource can be requested.
    """

    __slots__ = ("aliases", "name", "pieces", "size", "version", "warms")

    def __init__(
        self,
        name: str,
        type_url: str,
        value: bytes,
        warms: str = "",
        extra_pieces: tuple[bytes, ...] = (),
        version: str = "",
        aliases: tuple[str, ...] = (),
    ) -> None:
        """Serialize the resource.

        `extra_pieces` continue the serialized message `value`.
        """
        head = _ANY_HEADS.get(type_url)
        if head is None:
            head = _ANY_HEADS[type_url] = length_delimited(1, type_url.encode())
        total = len(value) + sum(map(len, extra_pieces))
        size = varint(total)
        length = len(head) + 1 + len(size) + total
        self.name, self.warms = sys.intern(name), sys.intern(warms)  # subscriptions and other resources have the same
        self.version, self.aliases = version, aliases
        self.pieces = (b"".join((b"\x12", varint(length), head, b"\x12", size, value)), *extra_pieces)
        self.size = len(self.pieces[0]) + total - len(value)

    @property
    def head(self) -> bytes:
        """The bytes that precede `encoded` in a DeltaDiscoveryResponse."""
        fields = length_delimited(3, self.name.encode())
        if self.version:
            fields += length_delimited(1, self.version.encode())
        fields += b"".join(length_delimited(4, alias.encode()) for alias in self.aliases)
        return b"".join((b"\x12", varint(len(fields) + self.size), fields))

    @property
    def encoded(self) -> bytes:
        """The concatenated pieces."""
        return b"".join(self.pieces)

    @property
    def any(self) -> bytes:
        """The serialized Any, without its field header."""
        encoded = self.encoded
        return encoded[_end_of_varint(encoded, 1) :]

    @property
    def message_pieces(self) -> tuple[bytes, ...]:
        """The pieces of the serialized message.

        If the builder has divided it between fields, each piece is a message of the same type.
        """
        first, *more = self.pieces
        size, offset = _read_varint(first, _end_of_varint(first, 1) + 1)
        return (first[_end_of_varint(first, offset + size + 1) :], *more)

    @classmethod
    def of(cls, type_url: str, message: Any, name: str | None = None, warms: str = "") -> Resource:
        """Return the resource for a protobuf message.

        Map fields are sorted, so that equal messages have equal bytes.
        """
        return cls(
            message.name if name is None else name, type_url, message.SerializeToString(deterministic=True), warms
        )

    @classmethod
    def versioned(cls, type_url: str, message: Any, name: str, aliases: tuple[str, ...] = ()) -> Resource:
        """Return the resource for a protobuf message, with a hash of the message as its version.

        Equal messages have equal versions in every process.
        """
        value = message.SerializeToString(deterministic=True)
        return cls(name, type_url, value, version=hashlib.blake2b(value, digest_size=8).hexdigest(), aliases=aliases)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Resource) or self.size != other.size or self.warms != other.warms:
            return False
        return self.pieces == other.pieces or (not _same_lengths(self, other) and self.encoded == other.encoded)

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return f"<Resource {self.name} {self.size} bytes>"


def _same_lengths(first: Resource, second: Resource) -> bool:
    """Return whether the pieces of two resources have the same lengths.

    If they do, the resources are equal only if each piece is equal.
    """
    return [*map(len, first.pieces)] == [*map(len, second.pieces)]
