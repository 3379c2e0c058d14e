"""The words of rules, for one family of addresses: which packets, and what becomes of them. iptables and nftables say them in their own."""

from __future__ import annotations

import enum
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

Network = IPv4Network | IPv6Network
Value = int | str | Network


class Family(enum.IntEnum):
    """A family of addresses, by the number of its version."""

    V4 = 4
    V6 = 6


class CaptureTable(enum.Enum):
    """A table of iptables, which says when its chains are gone through."""

    RAW = "raw"
    MANGLE = "mangle"
    NAT = "nat"


class Hook(enum.Enum):
    """Where packets come by: those that arrive, and those that processes of the pod send."""

    PREROUTING = "PREROUTING"
    OUTPUT = "OUTPUT"


class CaptureField(enum.Enum):
    """What a rule looks at. Ports are those of the rule's protocol, interfaces may end in +, states are those of connections."""

    SOURCE = "source"
    DESTINATION = "destination"
    SOURCE_PORT = "source port"
    DESTINATION_PORT = "destination port"
    INPUT = "input interface"
    OUTPUT = "output interface"
    USER = "user"
    GROUP = "group"
    MARK = "mark"
    CONNECTION_MARK = "connection mark"
    STATE = "state"


class Match(NamedTuple):
    """Holds where a field has one of the values; where `negated`, where it has none of them."""

    field: CaptureField
    values: tuple[Value, ...]
    negated: bool = False


class Verb(enum.Enum):
    """What becomes of a packet. JUMP goes on in another chain; the three of marks and ZONE go on with the next rule."""

    JUMP = "jump"
    RETURN = "return"
    ACCEPT = "accept"
    DROP = "drop"
    REDIRECT = "redirect"
    TPROXY = "tproxy"
    MARK = "mark"
    SAVE_MARK = "save mark"
    RESTORE_MARK = "restore mark"
    ZONE = "zone"


class CaptureAction(NamedTuple):
    """`argument`: the chain of JUMP, the port of REDIRECT and TPROXY, the number of MARK and ZONE. `mark`: that of TPROXY."""

    verb: Verb
    argument: int | str = ""
    mark: int = 0


class CaptureRule(NamedTuple):
    """`protocol` is tcp or udp, "" for any."""

    action: CaptureAction
    matches: tuple[Match, ...] = ()
    protocol: str = ""


class CaptureChain(NamedTuple):
    """Rules in their order. A chain with a `hook` is gone through there, others are jumped to."""

    table: CaptureTable
    name: str
    rules: tuple[CaptureRule, ...]
    hook: Hook | None = None


RETURN, ACCEPT, DROP = CaptureAction(Verb.RETURN), CaptureAction(Verb.ACCEPT), CaptureAction(Verb.DROP)


def jump(chain: str) -> CaptureAction:
    return CaptureAction(Verb.JUMP, chain)


def match(field: CaptureField, *values: Value) -> Match:
    return Match(field, values)


def unless(field: CaptureField, *values: Value) -> Match:
    return Match(field, values, negated=True)
