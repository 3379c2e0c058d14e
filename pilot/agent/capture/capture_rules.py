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
    """An IP family. Its value is the IP version."""

    V4 = 4
    V6 = 6


class CaptureTable(enum.Enum):
    """An iptables table. It determines when its chains are traversed."""

    RAW = "raw"
    MANGLE = "mangle"
    NAT = "nat"


class Hook(enum.Enum):
    """A point on the path of packets: PREROUTING for incoming packets, OUTPUT for those that local processes send."""

    PREROUTING = "PREROUTING"
    OUTPUT = "OUTPUT"


class CaptureField(enum.Enum):
    """A property of a packet.

    The values of a port field are ports of the rule's protocol. An interface name may end in + as a wildcard. A state
    is a connection state of conntrack.
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
    """Matches if the field has one of the values. If `negated`, matches if it has none of them."""

    field: CaptureField
    values: tuple[Value, ...]
    negated: bool = False


class Verb(enum.Enum):
    """The operation on a packet. After the three mark operations and ZONE, evaluation continues with the next rule."""

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

    `argument` is the chain for JUMP, the port for REDIRECT and TPROXY, or the number for MARK and ZONE. Only TPROXY
    uses `mark`.
    """

    verb: Verb
    argument: int | str = ""
    mark: int = 0


class CaptureRule(NamedTuple):
    """A rule. `protocol` is "tcp" or "udp", or "" for any protocol."""

    action: CaptureAction
    matches: tuple[Match, ...] = ()
    protocol: str = ""


class CaptureChain(NamedTuple):
    """An ordered list of rules. A chain with a `hook` is a base chain. Any other chain is reached only by a jump."""

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
