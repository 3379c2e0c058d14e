"""Packet filter rules of one IP family, independent of iptables and nftables."""

from __future__ import annotations

import enum
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

Network = IPv4Network | IPv6Network
Value = int | str | Network


class RulesError(Exception):
    """The rules could not be read or applied. The message names the program or interface and the reason."""


class Family(enum.IntEnum):
    """An IP family, by its version number."""

    V4 = 4
    V6 = 6


class CaptureTable(enum.Enum):
    """A table of iptables, which determines when its chains are traversed."""

    RAW = "raw"
    MANGLE = "mangle"
    NAT = "nat"


class Hook(enum.Enum):
    """A point in the path of packets: those that arrive, and those that processes of the pod send."""

    PREROUTING = "PREROUTING"
    OUTPUT = "OUTPUT"


class CaptureField(enum.Enum):
    """A property of a packet.

    Ports are those of the rule's protocol, interfaces may end in +, states are conntrack's.
    """

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
    """Matches if the field has one of the values, or if `negated`, none of them."""

    field: CaptureField
    values: tuple[Value, ...]
    negated: bool = False


class Verb(enum.Enum):
    """The verdict on a packet. After the three mark verbs and ZONE, evaluation continues with the next rule."""

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
    """A verb with its argument.

    `argument` is the chain of JUMP, the port of REDIRECT and TPROXY, or the number of MARK and ZONE. `mark` is for
    TPROXY.
    """

    verb: Verb
    argument: int | str = ""
    mark: int = 0


class CaptureRule(NamedTuple):
    """A rule. `protocol` is tcp or udp, or "" for any."""

    action: CaptureAction
    matches: tuple[Match, ...] = ()
    protocol: str = ""


class CaptureChain(NamedTuple):
    """An ordered list of rules. A chain with a `hook` is a base chain; others are only jumped to."""

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
