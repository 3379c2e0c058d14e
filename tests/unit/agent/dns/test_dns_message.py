"""DNS messages."""

from __future__ import annotations

import ipaddress
import socket
import struct

import pytest

from pilot.agent.dns.dns_message import (
    AAAA,
    FORMAT_ERROR,
    SERVER_FAILURE,
    A,
    DnsQuestion,
    build_answer,
    build_error,
    parse_query,
    truncate,
)

V4, V6 = ipaddress.ip_address("10.96.0.1"), ipaddress.ip_address("fd00::1")


def query(name: str, kind: int = A, number: int = 7, size: int = 0) -> bytes:
    """Return a query as resolvers send it. `size` adds EDNS."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".")) + b"\0"
    edns = b"\0" + struct.pack(">HHIH", 41, size, 0, 0) if size else b""
    return (
        struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 1 if size else 0) + labels + struct.pack(">HH", kind, 1) + edns
    )


def parse_answer(answer: bytes) -> tuple[int, int, list[str]]:
    """Return the number, code and addresses of an answer, parsed independently."""
    number, flags, questions, answers, _, _ = struct.unpack_from(">HHHHHH", answer)
    assert flags & 0x8000
    offset = 12
    for _ in range(questions):
        while answer[offset]:
            offset += 1 + answer[offset]
        offset += 5
    addresses = []
    for _ in range(answers):
        assert answer[offset : offset + 2] == b"\xc0\x0c"
        kind, _, _, size = struct.unpack_from(">HHIH", answer, offset + 2)
        addresses.append(
            socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, answer[offset + 12 : offset + 12 + size])
        )
        offset += 12 + size
    assert offset == len(answer)
    return number, flags & 0xF, addresses


def test_answer_holds_addresses_of_the_queried_family() -> None:
    for kind, address in ((A, "10.96.0.1"), (AAAA, "fd00::1")):
        question = parse_query(query("Books.Shop", kind))
        assert question.name == "books.shop."
        assert parse_answer(build_answer(question, (V4, V6), 512)) == (7, 0, [address])
    assert parse_answer(build_answer(parse_query(query("books", AAAA)), (V4,), 512)) == (7, 0, [])  # the name exists


def test_oversized_answer_is_truncated() -> None:
    addresses = tuple(ipaddress.ip_address(f"10.0.{number >> 8}.{number & 255}") for number in range(500))
    truncated = build_answer(parse_query(query("books")), addresses, 512)
    assert len(truncated) <= 512
    assert struct.unpack_from(">H", truncated, 2)[0] & 0x0200
    full = build_answer(parse_query(query("books", size=65000)), addresses, 65000)
    assert len(parse_answer(full)[2]) == 500
    assert parse_query(query("books", size=65000)).max_size == 65000
    assert truncate(full, 65000) == full
    cut = truncate(full, 512)
    assert struct.unpack_from(">HHHH", cut)[1:] == (struct.unpack_from(">H", full, 2)[0] | 0x0200, 1, 0)


def test_encoding_of_answers() -> None:
    question = query("a.b", AAAA)
    head, question_section = b"\0\7\x85\x80\0\1\0\1\0\0\0\0", question[12:]
    record = b"\xc0\x0c\0\x1c\0\1\0\0\0\x1e\0\x10" + V6.packed
    assert build_answer(parse_query(question), (V4, V6), 512) == head + question_section + record
    assert (
        build_answer(parse_query(question), (V6,), len(head + question_section + record))
        == head + question_section + record
    )
    assert (
        build_answer(parse_query(question), (V6,), len(head + question_section + record) - 1)
        == b"\0\7\x87\x80\0\1" + bytes(6) + question_section
    )
    non_recursive = question[:2] + bytes(2) + question[4:]  # without recursion desired
    assert build_answer(parse_query(non_recursive), (), 512) == b"\0\7\x84\x80\0\1" + bytes(6) + question_section
    assert build_error(question, SERVER_FAILURE) == b"\0\7\x80\2" + bytes(8)
    assert build_error(question[:2], FORMAT_ERROR) == b"\0\7\x80\1" + bytes(8)
    assert build_error(question[:1], FORMAT_ERROR) == b""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            query("A.bC"),
            DnsQuestion(7, 0x100, "a.bc.", A, query("a.bc")[12:].replace(b"a", b"A").replace(b"bc", b"bC"), 512),
        ),
        (query("a")[:12] + b"\0\0\x1c\0\1", DnsQuestion(7, 0x100, ".", AAAA, b"\0\0\x1c\0\1", 512)),
        (query("a", size=1232), DnsQuestion(7, 0x100, "a.", A, query("a")[12:], 1232)),
        (query("a", size=1), DnsQuestion(7, 0x100, "a.", A, query("a")[12:], 512)),
        (query("x" * 63), DnsQuestion(7, 0x100, "x" * 63 + ".", A, query("x" * 63)[12:], 512)),
    ],
)
def test_parsing_of_queries(message: bytes, expected: DnsQuestion) -> None:
    assert parse_query(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        query("a")[:-1],
        query("a")[:13],
        b"\0\1\x80\0" + query("a")[4:],  # a response
        b"\0\1\1\0\0\2" + query("a")[6:],  # two questions
        query("a")[:2] + b"\x08\0" + query("a")[4:],  # an opcode other than query
        query("a")[:7] + b"\1" + query("a")[8:],  # with an answer
        query("a")[:9] + b"\1" + query("a")[10:],  # with an authority
        query("a", size=512)[:-9],  # truncated
        query("a")[:12] + b"\xc0\x0c\0\1\0\1",  # a compressed name
    ],
)
def test_invalid_query_is_rejected(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_query(message)


@pytest.mark.parametrize("length", [20, 4, 0])
def test_truncation_keeps_header_and_question(length: int) -> None:
    question = query("books.shop.svc.cluster.local", number=9)
    head, name = struct.pack(">HHHHHH", 9, 0x8580, 1, 2, 3, 4), question[12:]
    message = head + name + bytes(length)
    assert truncate(message, len(message)) == message
    assert truncate(message, len(message) - 1) == struct.pack(">HHHHHH", 9, 0x8780, 1, 0, 0, 0) + name
    error = struct.pack(">HHHHHH", 9, 0x8182, 0, 1, 1, 1) + bytes(length)
    assert truncate(error, 11) == struct.pack(">HHHHHH", 9, 0x8382, 0, 0, 0, 0)
