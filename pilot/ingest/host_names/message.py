"""DNS messages for address queries (RFC 1035, RFC 3596)."""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

A, AAAA, INTERNET = 1, 28, 1
_HEADER, _RECORD = struct.Struct(">HHHHHH"), struct.Struct(">HHIH")
_RESPONSE, _TRUNCATED, _RECURSION_DESIRED, _CODE = 0x8000, 0x0200, 0x0100, 0x000F
_SIZES = {A: 4, AAAA: 16}
_LONGEST_NAME = 253


class Reply(NamedTuple):
    """A response: the addresses, the shortest TTL of its records, and the response code, which is 0 for success.

    If `cut` is true, the response was truncated and the query must be repeated over TCP.
    """

    addresses: tuple[str, ...]
    seconds: int | None
    code: int
    cut: bool


def build_query(number: int, name: str, kind: int) -> bytes:
    """Return a query for addresses of one family. Raise ValueError if the name is invalid."""
    labels = [label.encode("idna") if not label.isascii() else label.encode() for label in name.rstrip(".").split(".")]
    if len(name) > _LONGEST_NAME or not all(0 < len(label) < 64 for label in labels):
        raise ValueError(f"{name!r} is not a valid name")
    question = b"".join(bytes((len(label),)) + label for label in labels) + b"\0" + struct.pack(">HH", kind, INTERNET)
    return _HEADER.pack(number, _RECURSION_DESIRED, 1, 0, 0, 0) + question


def parse_reply(query: bytes, message: bytes) -> Reply:
    """Parse the response to a query. Raise ValueError if the message is not a response to it."""
    try:
        _, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
        if message[:2] != query[:2] or not flags & _RESPONSE or questions != 1:
            raise ValueError("the response does not match the query")
        at = _skip_name(message, _HEADER.size) + 4
        if message[_HEADER.size : at].lower() != query[_HEADER.size :].lower():
            raise ValueError("the response is for another question")
        if flags & _TRUNCATED:
            return Reply((), None, 0, True)
        addresses, seconds = _read_records(message, at, answers, struct.unpack_from(">H", query, len(query) - 4)[0])
    except (struct.error, IndexError) as error:
        raise ValueError("the response is truncated") from error
    return Reply(tuple(addresses), min(seconds, default=None), flags & _CODE, False)


def _read_records(message: bytes, at: int, count: int, kind: int) -> tuple[list[str], list[int]]:
    """Return the addresses of one type, and the TTLs of all records. Raise IndexError if the message is truncated."""
    addresses, seconds = list[str](), list[int]()
    for _ in range(count):
        at = _skip_name(message, at)
        record_kind, _, ttl, size = _RECORD.unpack_from(message, at)
        at += _RECORD.size
        if at + size > len(message):
            raise IndexError
        seconds.append(ttl if ttl < 1 << 31 else 0)
        if record_kind == kind and size == _SIZES[kind]:
            addresses.append(str(ipaddress.ip_address(message[at : at + size])))
        at += size
    return addresses, seconds


def _skip_name(message: bytes, at: int) -> int:
    """Return the offset after a name, which may end with a pointer. Raise IndexError if the message is truncated."""
    while length := message[at]:
        if length >= 0xC0:
            return at + 2
        at += 1 + length
    return at + 1
