"""DNS on the wire, as far as an answer of addresses needs it (RFC 1035, RFC 6891)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from typing import NamedTuple

A, AAAA, OPT, INTERNET = 1, 28, 41, 1
TTL = 30
"""Seconds; the table changes when services do."""
MIN_UDP_BYTES, LARGEST = 512, 65535
_HEADER = struct.Struct(">HHHHHH")
_RESPONSE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_DESIRED, _RECURSION_AVAILABLE, _OPCODE = (
    0x8000,
    0x0400,
    0x0200,
    0x0100,
    0x0080,
    0x7800,
)
_POINTER_TO_QUESTION = b"\xc0\x0c"
SERVER_FAILURE, FORMAT_ERROR = 2, 1
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class DnsQuestion(NamedTuple):
    """The first question of a query. `name` is in lower case with a final dot; `raw` are its bytes; `size` is what the asker takes by UDP."""

    id: int
    flags: int
    name: str
    type: int
    raw: bytes
    size: int


def parse_query(message: bytes) -> DnsQuestion:
    """Returns what a query asks. ValueError where it is none, or does not ask exactly one thing."""
    try:
        number, flags, questions, answers, authorities, additional = _HEADER.unpack_from(message)
        if flags & (_RESPONSE | _OPCODE) or questions != 1 or answers or authorities:
            raise ValueError("it is not a query with one question")
        name, at = _name(message, _HEADER.size)
        kind, _ = struct.unpack_from(">HH", message, at)
        end = at + 4
        size = MIN_UDP_BYTES
        if additional and message[end] == 0 and struct.unpack_from(">H", message, end + 1)[0] == OPT:
            size = max(MIN_UDP_BYTES, struct.unpack_from(">H", message, end + 3)[0])
    except (struct.error, IndexError) as error:
        raise ValueError("it ends too early") from error
    return DnsQuestion(number, flags, name, kind, message[_HEADER.size : end], size)


def build_answer(question: DnsQuestion, addresses: Sequence[Address], limit: int) -> bytes:
    """Returns an authoritative answer with those addresses that are of the type that is asked for; the rest is left out, and the answer
    marked as cut, where it would have more bytes than `limit`. No address at all is an answer too: the name exists."""
    wanted = [address.packed for address in addresses if (address.version == 4) == (question.type == A)]
    size = len(_POINTER_TO_QUESTION) + 10 + (4 if question.type == A else 16)
    fitting = max(0, (limit - _HEADER.size - len(question.raw)) // size)
    flags = _RESPONSE | _AUTHORITATIVE | _RECURSION_AVAILABLE | (question.flags & _RECURSION_DESIRED)
    if len(wanted) > fitting:
        wanted, flags = wanted[:fitting], flags | _TRUNCATED
    head = _HEADER.pack(question.id, flags, 1, len(wanted), 0, 0)
    records = (
        _POINTER_TO_QUESTION + struct.pack(">HHIH", question.type, INTERNET, TTL, len(packed)) + packed
        for packed in wanted
    )
    return head + question.raw + b"".join(records)


def build_error(message: bytes, code: int) -> bytes:
    """Returns an answer that says that there is none, to a message of which at least the number can be read; empty where not even that."""
    return message[:2] + struct.pack(">HHHHH", _RESPONSE | code, 0, 0, 0, 0) if len(message) >= 2 else b""


def cut(answer: bytes, limit: int) -> bytes:
    """Returns an answer as UDP may carry it: where it is longer than `limit`, its head and question alone, marked as cut."""
    if len(answer) <= limit:
        return answer
    number, flags, questions, *_ = _HEADER.unpack_from(answer)
    at = _HEADER.size
    if questions:
        _, at = _name(answer, at)
        at += 4
    return _HEADER.pack(number, flags | _TRUNCATED, questions, 0, 0, 0) + answer[_HEADER.size : at]


def _name(message: bytes, at: int) -> tuple[str, int]:
    """Returns a name in lower case with a final dot, and where the next thing begins. IndexError where it ends too early, ValueError
    where it is compressed, which the name of a question never is."""
    labels = []
    while length := message[at]:
        if length > 63:
            raise ValueError("the name of the question is compressed")
        label = message[at + 1 : at + 1 + length]
        if len(label) < length:
            raise IndexError
        labels.append(label.decode("latin-1").lower())
        at += 1 + length
    return "".join(f"{label}." for label in labels) or ".", at + 1
