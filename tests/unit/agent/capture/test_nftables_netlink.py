"""Encoding of rules for nftables and their transaction, with a kernel stub that records messages."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyroute2.netlink.nfnetlink.nftsocket import nft_chain_msg, nft_rule_msg, nft_table_msg

from pilot.agent.capture import nftables_netlink as netlink
from pilot.agent.capture.capture_rules import (
    ACCEPT,
    DROP,
    RETURN,
    CaptureAction,
    CaptureChain,
    CaptureField,
    CaptureRule,
    CaptureTable,
    Family,
    Hook,
    RulesError,
    Verb,
    jump,
    match,
    unless,
)
from pilot.agent.capture.nftables_expressions import build_expressions

NET, NET6 = ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")
HOST, HOST6 = ipaddress.ip_network("127.0.0.6/32"), ipaddress.ip_network("::6/128")
RESPONSE = struct.Struct("=IHHIIi")
KINDS = {0x0A00: nft_table_msg, 0x0A02: nft_table_msg, 0x0A03: nft_chain_msg, 0x0A06: nft_rule_msg}
NAMES = {
    0x10: "begin",
    0x11: "commit",
    0x0A00: "new table",
    0x0A02: "delete table",
    0x0A03: "new chain",
    0x0A06: "new rule",
}
FLAGS = {0x1: "request", 0x4: "ack", 0x400: "create", 0x800: "append"}
EXPRESSIONS = "NFTA_RULE_EXPRESSIONS"
META, SET_META = "meta KEY={} DREG=NFT_REG_1", "meta KEY={} SREG=NFT_REG_1"
CT, SET_CT = "ct KEY={} DREG=NFT_REG_1", "ct KEY={} SREG=NFT_REG_1"
PORT = "payload DREG=NFT_REG_1 BASE=NFT_PAYLOAD_TRANSPORT_HEADER OFFSET={} LEN=2"
ADDRESS = "payload DREG=NFT_REG_1 BASE=NFT_PAYLOAD_NETWORK_HEADER OFFSET={} LEN={}"
MASK = "bitwise SREG=NFT_REG_1 DREG=NFT_REG_1 LEN={} MASK={} XOR={}"
LOAD = "immediate DREG=NFT_REG_1 DATA={}"


def compare(data: str, operator: str = "EQ") -> str:
    return f"cmp SREG=NFT_REG_1 OP=NFT_CMP_{operator} DATA={data}"


def verdict(code: str) -> str:
    return f"immediate DREG=NFT_REG_VERDICT DATA={code}"


NO_BITS = compare("00000000", "NEQ")
# Match fields, protocol, and the expected kernel expressions.
MATCHES: list[tuple[Any, str, list[str]]] = [
    ((), "tcp", [META.format("NFT_META_L4PROTO"), compare("06")]),
    ((), "udp", [META.format("NFT_META_L4PROTO"), compare("11")]),
    (match(CaptureField.SOURCE, HOST), "", [ADDRESS.format(12, 4), compare("7f000006")]),
    (
        match(CaptureField.DESTINATION, NET),
        "",
        [ADDRESS.format(16, 4), MASK.format(4, "ff000000", "00000000"), compare("0a000000")],
    ),
    (match(CaptureField.SOURCE, HOST6), "", [ADDRESS.format(8, 16), compare("0" * 31 + "6")]),
    (
        unless(CaptureField.DESTINATION, NET6),
        "",
        [
            ADDRESS.format(24, 16),
            MASK.format(16, "ff" + "00" * 15, "00" * 16),
            compare("fd" + "00" * 15, "NEQ"),
        ],
    ),
    (match(CaptureField.SOURCE_PORT, 53), "", [PORT.format(0), compare("0035")]),
    (
        unless(CaptureField.DESTINATION_PORT, 53, 15008),
        "",
        [PORT.format(2), compare("0035", "NEQ"), PORT.format(2), compare("3aa0", "NEQ")],
    ),
    (match(CaptureField.INPUT, "eth+"), "", [META.format("NFT_META_IIFNAME"), compare("657468")]),
    (match(CaptureField.OUTPUT, "lo"), "", [META.format("NFT_META_OIFNAME"), compare("6c6f" + "00" * 14)]),
    (match(CaptureField.USER, 1337), "", [META.format("NFT_META_SKUID"), compare("39050000")]),
    (unless(CaptureField.GROUP, 1337), "", [META.format("NFT_META_SKGID"), compare("39050000", "NEQ")]),
    (match(CaptureField.MARK, 7), "", [META.format("NFT_META_MARK"), compare("07000000")]),
    (match(CaptureField.CONNECTION_MARK, 7), "", [CT.format("NFT_CT_MARK"), compare("07000000")]),
    (
        match(CaptureField.STATE, "INVALID"),
        "",
        [CT.format("NFT_CT_STATE"), MASK.format(4, "01000000", "00000000"), NO_BITS],
    ),
    (
        match(CaptureField.STATE, "RELATED", "ESTABLISHED"),
        "",
        [CT.format("NFT_CT_STATE"), MASK.format(4, "06000000", "00000000"), NO_BITS],
    ),
    (
        unless(CaptureField.STATE, "INVALID"),
        "",
        [
            CT.format("NFT_CT_STATE"),
            MASK.format(4, "01000000", "00000000"),
            compare("00000000"),
        ],
    ),
]
ACTIONS: list[tuple[CaptureAction, list[str]]] = [
    (jump("B"), [verdict("NFT_JUMP nat_B")]),
    (RETURN, [verdict("NFT_RETURN")]),
    (ACCEPT, [verdict("NF_ACCEPT")]),
    (DROP, [verdict("NF_DROP")]),
    (CaptureAction(Verb.REDIRECT, 15001), [LOAD.format("3a99"), "redir REG_PROTO_MIN=NFT_REG_1"]),
    (
        CaptureAction(Verb.TPROXY, 15006, 1337),
        [
            LOAD.format("3a9e"),
            "tproxy FAMILY={} REG_PORT=NFT_REG_1",
            LOAD.format("39050000"),
            SET_META.format("NFT_META_MARK"),
            verdict("NF_ACCEPT"),
        ],
    ),
    (CaptureAction(Verb.MARK, 7), [LOAD.format("07000000"), SET_META.format("NFT_META_MARK")]),
    (CaptureAction(Verb.SAVE_MARK), [META.format("NFT_META_MARK"), SET_CT.format("NFT_CT_MARK")]),
    (CaptureAction(Verb.RESTORE_MARK), [CT.format("NFT_CT_MARK"), SET_META.format("NFT_META_MARK")]),
    (CaptureAction(Verb.ZONE, 2), [LOAD.format("0200"), SET_CT.format("NFT_CT_ZONE")]),
]


@dataclasses.dataclass
class Kernel:
    """A kernel socket stub.

    It records messages and answers with codes by message number, two at a time. Reading with no answer left fails.
    """

    codes: Mapping[int, int] = dataclasses.field(default_factory=dict)
    calls: list[Any] = dataclasses.field(default_factory=list)

    def __call__(self, *kind: int) -> Kernel:
        self.calls.append(("socket", *kind))
        return self

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("closed")

    def settimeout(self, seconds: float) -> None:
        self.calls.append(("timeout", seconds))

    def setsockopt(self, *option: int) -> None:
        self.calls.append(("option", *option))

    def bind(self, address: tuple[int, int]) -> None:
        self.calls.append(("bound", address))

    def send(self, data: bytes) -> None:
        self.data = data
        self.responses = [RESPONSE.pack(RESPONSE.size, 2, 0, number, 0, -code) for number, code in self.codes.items()]

    def recv(self, size: int) -> bytes:
        responses, self.responses = self.responses[:2], self.responses[2:]
        assert responses, "no response is left"
        return b"".join(responses)


def describe(value: Any) -> str:
    """Return the data of an expression in one or two words."""
    if not isinstance(value, dict):
        return value.hex() if isinstance(value, bytes) else str(value)
    return " ".join(describe(inner) for _, inner in value["attrs"])


def format_expression(expression: Any) -> str:
    (_, name), (_, data) = expression["attrs"]
    return " ".join(
        [name, *(f"{key.removeprefix(f'NFTA_{name.upper()}_')}={describe(value)}" for key, value in data["attrs"])]
    )


def messages(data: bytes) -> list[tuple[int, str, str, int, Any]]:
    """Return the messages of a transaction: number, type, flags, address family and attributes."""
    rows, offset = [], 0
    while offset < len(data):
        size, kind, flags, number, _, family, _, resource = struct.unpack_from("=IHHIIBBH", data, offset)
        words = "+".join(name for bit, name in FLAGS.items() if flags & bit)
        if decoder := KINDS.get(kind):
            message = decoder(data[offset : offset + size])
            message.decode()
            attributes = {
                key.partition("_")[2]: value if key == EXPRESSIONS else describe(value)
                for key, value in message["attrs"]
            }
            rows.append((number, NAMES[kind], words, family, attributes))
        else:
            rows.append(
                (number, NAMES[kind], words, family, {"subsystem": struct.unpack(">H", struct.pack("=H", resource))[0]})
            )
        offset += size
    return rows


def apply_chains(
    monkeypatch: pytest.MonkeyPatch, chains: Mapping[Family, Sequence[CaptureChain]], codes: Mapping[int, int]
) -> Kernel:
    kernel = Kernel(codes)
    with monkeypatch.context() as patch:
        patch.setattr("pilot.agent.capture.nftables_netlink.socket.socket", kernel)
        netlink.apply(chains)
    return kernel


def kernel_expressions(rule: CaptureRule, family: Family, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    kernel = apply_chains(monkeypatch, {family: [CaptureChain(CaptureTable.NAT, "A", (rule,))]}, {7: 0})
    (attributes,) = [message[-1] for message in messages(kernel.data) if message[1] == "new rule"]
    assert (attributes["RULE_TABLE"], attributes["RULE_CHAIN"]) == ("istio-proxy", "nat_A")
    return [format_expression(expression) for expression in attributes["RULE_EXPRESSIONS"]]


@pytest.mark.parametrize(("field", "protocol", "expected"), MATCHES)
def test_match_expressions(field: Any, protocol: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rule = CaptureRule(RETURN, (field,) if field else (), protocol)
    assert kernel_expressions(rule, Family.V4, monkeypatch) == [*expected, verdict("NFT_RETURN")]


@pytest.mark.parametrize(("action", "expected"), ACTIONS)
@pytest.mark.parametrize(("family", "number"), [(Family.V4, "NFT_REG_2"), (Family.V6, "NFT_REG32_02")])
def test_action_expressions(
    action: CaptureAction, expected: list[str], family: Family, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expressions = kernel_expressions(CaptureRule(action), family, monkeypatch)
    assert expressions == [line.format(number) for line in expected]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (CaptureRule(RETURN, (match(CaptureField.USER, 1, 2),)), "several values require a negated match"),
        (CaptureRule(RETURN, (match(CaptureField.USER, "root"),)), "invalid value 'root'"),
        (CaptureRule(RETURN, (match(CaptureField.SOURCE, "lo"),)), "invalid value 'lo'"),
        (CaptureRule(CaptureAction(Verb.REDIRECT, "http")), "invalid action"),
    ],
)
def test_unsupported_rule_is_rejected(rule: CaptureRule, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(build_expressions(rule, CaptureTable.NAT, Family.V4))


def test_one_transaction_replaces_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [
        CaptureChain(CaptureTable.NAT, "IN", (CaptureRule(RETURN), CaptureRule(ACCEPT))),
        CaptureChain(CaptureTable.MANGLE, "OUTPUT", (CaptureRule(DROP),), Hook.OUTPUT),
        CaptureChain(CaptureTable.RAW, "PREROUTING", (), Hook.PREROUTING),
    ]
    kernel = apply_chains(monkeypatch, {Family.V6: chains}, {5: 0, 11: 0})
    table, rule = {"TABLE_NAME": "istio-proxy"}, {"RULE_TABLE": "istio-proxy"}
    rows = messages(kernel.data)
    for *_, attributes in rows:
        attributes.pop("RULE_EXPRESSIONS", None)
    assert rows == [
        (0, "begin", "request", 0, {"subsystem": 10}),
        (1, "new table", "request+create", 2, table),
        (2, "delete table", "request", 2, table),
        (3, "new table", "request+create", 10, table),
        (4, "delete table", "request", 10, table),
        (5, "new table", "request+create", 10, table),
        (6, "new chain", "request+create", 10, {"CHAIN_TABLE": "istio-proxy", "CHAIN_NAME": "nat_IN"}),
        (
            7,
            "new chain",
            "request+create",
            10,
            {
                "CHAIN_TABLE": "istio-proxy",
                "CHAIN_NAME": "mangle_OUTPUT",
                "CHAIN_HOOK": "3 -150",
                "CHAIN_POLICY": "1",
                "CHAIN_TYPE": "route",
            },
        ),
        (
            8,
            "new chain",
            "request+create",
            10,
            {
                "CHAIN_TABLE": "istio-proxy",
                "CHAIN_NAME": "raw_PREROUTING",
                "CHAIN_HOOK": "0 -300",
                "CHAIN_POLICY": "1",
                "CHAIN_TYPE": "filter",
            },
        ),
        (9, "new rule", "request+create+append", 10, {**rule, "RULE_CHAIN": "nat_IN"}),
        (10, "new rule", "request+create+append", 10, {**rule, "RULE_CHAIN": "nat_IN"}),
        (11, "new rule", "request+ack+create+append", 10, {**rule, "RULE_CHAIN": "mangle_OUTPUT"}),
        (12, "commit", "request", 0, {"subsystem": 10}),
    ]


def test_netlink_socket_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = apply_chains(monkeypatch, {}, {4: 0})
    assert kernel.calls == [
        ("socket", 16, 3, 12),
        ("timeout", 10.0),
        ("option", 1, 7, len(kernel.data)),
        ("bound", (0, 0)),
        "closed",
    ]


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        ({0: errno.EPERM}, "nftables: Operation not permitted"),
        ({2: errno.ENOENT, 3: errno.EINVAL, 4: 0}, "nftables: No such file or directory"),
        ({3: errno.EINVAL, 4: errno.ENOENT}, "nftables: Invalid argument"),
    ],
)
def test_first_kernel_error_is_reported(codes: dict[int, int], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RulesError) as error:
        apply_chains(monkeypatch, {}, codes)
    assert str(error.value) == text
