"""DNS on the wire, as far as somebody who asks for addresses needs it (RFC 1035, RFC 3596)."""

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
    """The addresses of an answer, and the seconds that the shortest-lived record of it holds. `code` is 0 where all went well. With `cut` it did
    not fit, and is to be had over TCP."""

    addresses: tuple[str, ...]
    seconds: int | None
    code: int
    cut: bool


def build_query(number: int, name: str, kind: int) -> bytes:
    """Returns a question for the addresses of one family of a whole name. ValueError where it is no name."""
    labels = [label.encode("idna") if not label.isascii() else label.encode() for label in name.rstrip(".").split(".")]
    if len(name) > _LONGEST_NAME or not all(0 < len(label) < 64 for label in labels):
        raise ValueError(f"{name!r} is no name")
    question = b"".join(bytes((len(label),)) + label for label in labels) + b"\0" + struct.pack(">HH", kind, INTERNET)
    return _HEADER.pack(number, _RECURSION_DESIRED, 1, 0, 0, 0) + question


def parse_reply(query: bytes, message: bytes) -> Reply:
    """Returns what the answer to a query says. ValueError where it is no answer to it."""
    try:
        _, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
        if message[:2] != query[:2] or not flags & _RESPONSE or questions != 1:
            raise ValueError("it answers something else")
        at = _skip_name(message, _HEADER.size) + 4
        if message[_HEADER.size : at].lower() != query[_HEADER.size :].lower():
            raise ValueError("it answers another question")
        if flags & _TRUNCATED:
            return Reply((), None, 0, True)
        addresses, seconds = _read_records(message, at, answers, struct.unpack_from(">H", query, len(query) - 4)[0])
    except (struct.error, IndexError) as error:
        raise ValueError("it ends too early") from error
    return Reply(tuple(addresses), min(seconds, default=None), flags & _CODE, False)


def _read_records(message: bytes, at: int, count: int, kind: int) -> tuple[list[str], list[int]]:
    """Returns the addresses of a type, and the seconds that each record holds. IndexError where the message ends too early."""
    addresses, seconds = list[str](), list[int]()
    for _ in range(count):
        at = _skip_name(message, at)
        found, _, life, size = _RECORD.unpack_from(message, at)
        at += _RECORD.size
        if at + size > len(message):
            raise IndexError
        seconds.append(life if life < 1 << 31 else 0)
        if found == kind and size == _SIZES[kind]:
            addresses.append(str(ipaddress.ip_address(message[at : at + size])))
        at += size
    return addresses, seconds


def _skip_name(message: bytes, at: int) -> int:
    """Returns where a name ends, which may be the rest of another one. IndexError where the message ends in it."""
    while length := message[at]:
        if length >= 0xC0:
            return at + 2
        at += 1 + length
    return at + 1
