"""Rules on their way into a kernel: each as nftables has it, and the transaction that they are one by one in. A kernel stands in that records."""

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
ANSWER = struct.Struct("=IHHIIi")
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


def compared(data: str, how: str = "EQ") -> str:
    return f"cmp SREG=NFT_REG_1 OP=NFT_CMP_{how} DATA={data}"


def verdict(code: str) -> str:
    return f"immediate DREG=NFT_REG_VERDICT DATA={code}"


NO_BITS = compared("00000000", "NEQ")
# What a rule looks at, and what the kernel is told of it.
MATCHES: list[tuple[Any, str, list[str]]] = [
    ((), "tcp", [META.format("NFT_META_L4PROTO"), compared("06")]),
    ((), "udp", [META.format("NFT_META_L4PROTO"), compared("11")]),
    (match(CaptureField.SOURCE, HOST), "", [ADDRESS.format(12, 4), compared("7f000006")]),
    (
        match(CaptureField.DESTINATION, NET),
        "",
        [ADDRESS.format(16, 4), MASK.format(4, "ff000000", "00000000"), compared("0a000000")],
    ),
    (match(CaptureField.SOURCE, HOST6), "", [ADDRESS.format(8, 16), compared("0" * 31 + "6")]),
    (
        unless(CaptureField.DESTINATION, NET6),
        "",
        [
            ADDRESS.format(24, 16),
            MASK.format(16, "ff" + "00" * 15, "00" * 16),
            compared("fd" + "00" * 15, "NEQ"),
        ],
    ),
    (match(CaptureField.SOURCE_PORT, 53), "", [PORT.format(0), compared("0035")]),
    (
        unless(CaptureField.DESTINATION_PORT, 53, 15008),
        "",
        [PORT.format(2), compared("0035", "NEQ"), PORT.format(2), compared("3aa0", "NEQ")],
    ),
    (match(CaptureField.INPUT, "eth+"), "", [META.format("NFT_META_IIFNAME"), compared("657468")]),
    (match(CaptureField.OUTPUT, "lo"), "", [META.format("NFT_META_OIFNAME"), compared("6c6f" + "00" * 14)]),
    (match(CaptureField.USER, 1337), "", [META.format("NFT_META_SKUID"), compared("39050000")]),
    (unless(CaptureField.GROUP, 1337), "", [META.format("NFT_META_SKGID"), compared("39050000", "NEQ")]),
    (match(CaptureField.MARK, 7), "", [META.format("NFT_META_MARK"), compared("07000000")]),
    (match(CaptureField.CONNECTION_MARK, 7), "", [CT.format("NFT_CT_MARK"), compared("07000000")]),
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
            compared("00000000"),
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
    """Stands in for the kernel's socket: keeps what it is sent, and answers with codes by the number of a message, two at a time. It refuses to
    be waited for where no answer is left."""

    codes: Mapping[int, int] = dataclasses.field(default_factory=dict)
    said: list[Any] = dataclasses.field(default_factory=list)

    def __call__(self, *kind: int) -> Kernel:
        self.said.append(("socket", *kind))
        return self

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.said.append("closed")

    def settimeout(self, seconds: float) -> None:
        self.said.append(("timeout", seconds))

    def setsockopt(self, *option: int) -> None:
        self.said.append(("option", *option))

    def bind(self, address: tuple[int, int]) -> None:
        self.said.append(("bound", address))

    def send(self, data: bytes) -> None:
        self.data = data
        self.answers = [ANSWER.pack(ANSWER.size, 2, 0, number, 0, -code) for number, code in self.codes.items()]

    def recv(self, size: int) -> bytes:
        two, self.answers = self.answers[:2], self.answers[2:]
        assert two, "no answer is left"
        return b"".join(two)


def plain(value: Any) -> str:
    """What the data of an expression is, in one word or two."""
    if not isinstance(value, dict):
        return value.hex() if isinstance(value, bytes) else str(value)
    return " ".join(plain(inner) for _, inner in value["attrs"])


def shown(expression: Any) -> str:
    (_, name), (_, data) = expression["attrs"]
    return " ".join(
        [name, *(f"{key.removeprefix(f'NFTA_{name.upper()}_')}={plain(value)}" for key, value in data["attrs"])]
    )


def messages(data: bytes) -> list[tuple[int, str, str, int, Any]]:
    """Every message of a transaction: number, what it does, its flags, the family of addresses, and what it says."""
    found, at = [], 0
    while at < len(data):
        size, kind, flags, number, _, family, _, resource = struct.unpack_from("=IHHIIBBH", data, at)
        words = "+".join(name for bit, name in FLAGS.items() if flags & bit)
        if decoder := KINDS.get(kind):
            decoded = decoder(data[at : at + size])
            decoded.decode()
            said = {
                key.partition("_")[2]: value if key == EXPRESSIONS else plain(value) for key, value in decoded["attrs"]
            }
            found.append((number, NAMES[kind], words, family, said))
        else:
            found.append(
                (number, NAMES[kind], words, family, {"subsystem": struct.unpack(">H", struct.pack("=H", resource))[0]})
            )
        at += size
    return found


def applied(
    monkeypatch: pytest.MonkeyPatch, chains: Mapping[Family, Sequence[CaptureChain]], codes: Mapping[int, int]
) -> Kernel:
    kernel = Kernel(codes)
    with monkeypatch.context() as only_here:
        only_here.setattr("pilot.agent.capture.nftables_netlink.socket.socket", kernel)
        netlink.apply(chains)
    return kernel


def expressions_in_the_kernel(rule: CaptureRule, family: Family, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    kernel = applied(monkeypatch, {family: [CaptureChain(CaptureTable.NAT, "A", (rule,))]}, {7: 0})
    (said,) = [message[-1] for message in messages(kernel.data) if message[1] == "new rule"]
    assert (said["RULE_TABLE"], said["RULE_CHAIN"]) == ("istio-proxy", "nat_A")
    return [shown(expression) for expression in said["RULE_EXPRESSIONS"]]


@pytest.mark.parametrize(("looked_at", "protocol", "expected"), MATCHES)
def test_what_a_rule_looks_at_is_loaded_and_compared(
    looked_at: Any, protocol: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = CaptureRule(RETURN, (looked_at,) if looked_at else (), protocol)
    assert expressions_in_the_kernel(rule, Family.V4, monkeypatch) == [*expected, verdict("NFT_RETURN")]


@pytest.mark.parametrize(("action", "expected"), ACTIONS)
@pytest.mark.parametrize(("family", "number"), [(Family.V4, "NFT_REG_2"), (Family.V6, "NFT_REG32_02")])
def test_what_a_rule_does(
    action: CaptureAction, expected: list[str], family: Family, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = expressions_in_the_kernel(CaptureRule(action), family, monkeypatch)
    assert found == [each.format(number) for each in expected]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (CaptureRule(RETURN, (match(CaptureField.USER, 1, 2),)), "several values need a negated match"),
        (CaptureRule(RETURN, (match(CaptureField.USER, "root"),)), "invalid value 'root'"),
        (CaptureRule(RETURN, (match(CaptureField.SOURCE, "lo"),)), "invalid value 'lo'"),
        (CaptureRule(CaptureAction(Verb.REDIRECT, "http")), "invalid action"),
    ],
)
def test_a_rule_that_the_kernel_has_no_words_for_is_a_bug_that_is_told(rule: CaptureRule, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(build_expressions(rule, CaptureTable.NAT, Family.V4))


def test_all_rules_are_one_transaction_that_replaces_our_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [
        CaptureChain(CaptureTable.NAT, "IN", (CaptureRule(RETURN), CaptureRule(ACCEPT))),
        CaptureChain(CaptureTable.MANGLE, "OUTPUT", (CaptureRule(DROP),), Hook.OUTPUT),
        CaptureChain(CaptureTable.RAW, "PREROUTING", (), Hook.PREROUTING),
    ]
    kernel = applied(monkeypatch, {Family.V6: chains}, {5: 0, 11: 0})
    table, rule = {"TABLE_NAME": "istio-proxy"}, {"RULE_TABLE": "istio-proxy"}
    found = messages(kernel.data)
    for *_, said in found:
        said.pop("RULE_EXPRESSIONS", None)
    assert found == [
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


def test_the_kernel_is_asked_once_and_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = applied(monkeypatch, {}, {4: 0})
    assert kernel.said == [
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
def test_the_first_reason_why_the_kernel_refuses_is_told(
    codes: dict[int, int], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RulesError) as error:
        applied(monkeypatch, {}, codes)
    assert str(error.value) == text
