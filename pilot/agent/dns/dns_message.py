"""The subset of the DNS wire format that address queries need (RFC 1035, RFC 6891)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from typing import NamedTuple

A, AAAA, OPT, INTERNET = 1, 28, 41, 1
TTL = 30
"""Time to live of records in seconds. It is short because services change."""
MIN_UDP_BYTES, MAX_BYTES = 512, 65535
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
    """The question of a query.

    `name` is in lower case and ends with a dot. `raw` is the question section. `max_size` is the size in bytes of the
    largest UDP response that the client accepts.
    """

    id: int
    flags: int
    name: str
    type: int
    raw: bytes
    max_size: int


def parse_query(message: bytes) -> DnsQuestion:
    """Return the question of a query. Raises ValueError if the message is not a query with exactly one question."""
    try:
        query_id, flags, questions, answers, authorities, additional = _HEADER.unpack_from(message)
        if flags & (_RESPONSE | _OPCODE) or questions != 1 or answers or authorities:
            raise ValueError("expected a query with one question")
        name, offset = _name(message, _HEADER.size)
        record_type, _ = struct.unpack_from(">HH", message, offset)
        end = offset + 4
        max_size = MIN_UDP_BYTES
        if additional and message[end] == 0 and struct.unpack_from(">H", message, end + 1)[0] == OPT:
            max_size = max(MIN_UDP_BYTES, struct.unpack_from(">H", message, end + 3)[0])
    except (struct.error, IndexError) as error:
        raise ValueError("truncated message") from error
    return DnsQuestion(query_id, flags, name, record_type, message[_HEADER.size : end], max_size)


def build_answer(question: DnsQuestion, addresses: Sequence[Address], limit: int) -> bytes:
    """Return an authoritative response with the addresses of the requested type.

    Records that do not fit into `limit` bytes are omitted, and the response is marked as truncated. A response without
    addresses means that the name exists but has no address of this type.
    """
    records = [address.packed for address in addresses if (address.version == 4) == (question.type == A)]
    record_size = len(_POINTER_TO_QUESTION) + 10 + (4 if question.type == A else 16)
    max_records = max(0, (limit - _HEADER.size - len(question.raw)) // record_size)
    flags = _RESPONSE | _AUTHORITATIVE | _RECURSION_AVAILABLE | (question.flags & _RECURSION_DESIRED)
    if len(records) > max_records:
        records, flags = records[:max_records], flags | _TRUNCATED
    header = _HEADER.pack(question.id, flags, 1, len(records), 0, 0)
    encoded = (
        _POINTER_TO_QUESTION + struct.pack(">HHIH", question.type, INTERNET, TTL, len(packed)) + packed
        for packed in records
    )
    return header + question.raw + b"".join(encoded)


def build_error(message: bytes, code: int) -> bytes:
    """Return an error response to a message, or b"" if the message has no ID."""
    return message[:2] + struct.pack(">HHHHH", _RESPONSE | code, 0, 0, 0, 0) if len(message) >= 2 else b""


def truncate(response: bytes, limit: int) -> bytes:
    """Return a response for UDP. If it exceeds `limit` bytes, keep only header and question, marked as truncated."""
    if len(response) <= limit:
        return response
    query_id, flags, questions, *_ = _HEADER.unpack_from(response)
    offset = _HEADER.size
    if questions:
        _, offset = _name(response, offset)
        offset += 4
    return _HEADER.pack(query_id, flags | _TRUNCATED, questions, 0, 0, 0) + response[_HEADER.size : offset]


def _name(message: bytes, offset: int) -> tuple[str, int]:
    """Return a name in lower case with a trailing dot, and the offset after it.

    Raises IndexError for a truncated name. Raises ValueError for a compressed name, which a question never contains.
    """
    labels = []
    while length := message[offset]:
        if length > 63:
            raise ValueError("the name of the question is compressed")
        label = message[offset + 1 : offset + 1 + length]
        if len(label) < length:
            raise IndexError
        labels.append(label.decode("latin-1").lower())
        offset += 1 + length
    return "".join(f"{label}." for label in labels) or ".", offset + 1
