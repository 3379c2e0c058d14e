"""Rules as nftables expressions, which load, compare and set values."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from pyroute2.nftables.expressions import genex

from pilot.agent.capture.capture_rules import (
    CaptureAction,
    CaptureField,
    CaptureRule,
    CaptureTable,
    Family,
    Match,
    Network,
    Value,
    Verb,
)
from pilot.agent.capture.nftables_script import chain_name

Expression = dict[str, Any]
PROTOCOL_FAMILIES = {Family.V4: 2, Family.V6: 10}
NETWORK_HEADER, TRANSPORT_HEADER = 1, 2
PROTOCOLS = {"tcp": 6, "udp": 17}
META_MARK, META_IIFNAME, META_OIFNAME, META_SKUID, META_SKGID, META_L4PROTO = 3, 6, 7, 10, 11, 16
CT_STATE, CT_MARK, CT_ZONE = 0, 3, 17
STATES = {"INVALID": 1, "ESTABLISHED": 2, "RELATED": 4}
EQUAL, UNEQUAL = 0, 1
VERDICTS = {Verb.DROP: 0, Verb.ACCEPT: 1, Verb.JUMP: -3, Verb.RETURN: -5}
VERDICT_REGISTER, REGISTER = 0, 1
INTERFACE_BYTES = 16


def build_expressions(rule: CaptureRule, table: CaptureTable, family: Family) -> Iterator[Expression]:
    """Yield the expressions of a rule. The kernel evaluates them in order until a comparison fails."""
    if rule.protocol:
        yield _expression("meta", {"key": META_L4PROTO, "dreg": REGISTER})
        yield _compare(bytes([PROTOCOLS[rule.protocol]]))
    for match in rule.matches:
        yield from _match(match)
    yield from _action(rule.action, table, family)


def _match(match: Match) -> Iterator[Expression]:
    """Yield the comparisons for a match.

    Only a negated match or a match on the connection state can have several values. The values of a state are bits.
    """
    if match.field is CaptureField.STATE:
        bits = sum(STATES[str(state)] for state in match.values)
        yield _expression("ct", {"key": CT_STATE, "dreg": REGISTER})
        yield _mask(struct.pack("=I", bits), bytes(4))
        yield _compare(bytes(4), EQUAL if match.negated else UNEQUAL)
        return
    if len(match.values) > 1 and not match.negated:
        raise ValueError(f"{match}: several values require a negated match")
    for value in match.values:
        yield from _compare_field(match.field, value, UNEQUAL if match.negated else EQUAL)


def _compare_field(field: CaptureField, value: Value, operator: int) -> Iterator[Expression]:
    match field, value:
        case ((CaptureField.SOURCE | CaptureField.DESTINATION), _) if not isinstance(value, int | str):
            yield from _compare_address(field, value, operator)
        case ((CaptureField.SOURCE_PORT | CaptureField.DESTINATION_PORT), int()):
            yield _payload(TRANSPORT_HEADER, 0 if field is CaptureField.SOURCE_PORT else 2, 2)
            yield _compare(struct.pack(">H", value), operator)
        case ((CaptureField.INPUT | CaptureField.OUTPUT), str()):
            name = value.encode()
            yield _expression(
                "meta", {"key": META_IIFNAME if field is CaptureField.INPUT else META_OIFNAME, "dreg": REGISTER}
            )
            yield _compare(
                name.removesuffix(b"+") if name.endswith(b"+") else name.ljust(INTERFACE_BYTES, b"\0"), operator
            )
        case ((CaptureField.USER | CaptureField.GROUP | CaptureField.MARK), int()):
            key = {CaptureField.USER: META_SKUID, CaptureField.GROUP: META_SKGID, CaptureField.MARK: META_MARK}[field]
            yield _expression("meta", {"key": key, "dreg": REGISTER})
            yield _compare(struct.pack("=I", value), operator)
        case CaptureField.CONNECTION_MARK, int():
            yield _expression("ct", {"key": CT_MARK, "dreg": REGISTER})
            yield _compare(struct.pack("=I", value), operator)
        case _:
            raise ValueError(f"invalid value {value!r} for {field}")


def _compare_address(field: CaptureField, network: Network, operator: int) -> Iterator[Expression]:
    size = len(network.network_address.packed)
    source, destination = (12, 16) if size == 4 else (8, 24)
    yield _payload(NETWORK_HEADER, source if field is CaptureField.SOURCE else destination, size)
    if network.prefixlen < network.max_prefixlen:
        yield _mask(network.netmask.packed, bytes(size))
    yield _compare(network.network_address.packed, operator)


def _action(action: CaptureAction, table: CaptureTable, family: Family) -> Iterator[Expression]:
    match action.verb, action.argument:
        case Verb.JUMP, str(chain):
            yield _verdict(VERDICTS[Verb.JUMP], chain_name(table, chain))
        case (Verb.RETURN | Verb.ACCEPT | Verb.DROP) as verb, _:
            yield _verdict(VERDICTS[verb])
        case Verb.REDIRECT, int(port):
            yield _load(struct.pack(">H", port))
            yield _expression("redir", {"reg_proto_min": REGISTER})
        case Verb.TPROXY, int(port):
            yield _load(struct.pack(">H", port))
            yield _expression("tproxy", {"family": PROTOCOL_FAMILIES[family], "reg_port": REGISTER})
            yield from _set_mark(action.mark)
            yield _verdict(VERDICTS[Verb.ACCEPT])
        case Verb.MARK, int(mark):
            yield from _set_mark(mark)
        case Verb.SAVE_MARK, _:
            yield _expression("meta", {"key": META_MARK, "dreg": REGISTER})
            yield _expression("ct", {"key": CT_MARK, "sreg": REGISTER})
        case Verb.RESTORE_MARK, _:
            yield _expression("ct", {"key": CT_MARK, "dreg": REGISTER})
            yield _expression("meta", {"key": META_MARK, "sreg": REGISTER})
        case Verb.ZONE, int(zone):
            yield _load(struct.pack("=H", zone))
            yield _expression("ct", {"key": CT_ZONE, "sreg": REGISTER})
        case _:
            raise ValueError(f"invalid action {action}")


def _set_mark(mark: int) -> Iterator[Expression]:
    yield _load(struct.pack("=I", mark))
    yield _expression("meta", {"key": META_MARK, "sreg": REGISTER})


def _value(data: bytes) -> dict[str, Any]:
    return {"attrs": [("NFTA_DATA_VALUE", data)]}


def _load(data: bytes) -> Expression:
    return _expression("immediate", {"dreg": REGISTER, "data": _value(data)})


def _payload(header: int, offset: int, size: int) -> Expression:
    return _expression("payload", {"dreg": REGISTER, "base": header, "offset": offset, "len": size})


def _mask(mask: bytes, xor: bytes) -> Expression:
    attributes = {"sreg": REGISTER, "dreg": REGISTER, "len": len(mask), "mask": _value(mask), "xor": _value(xor)}
    return _expression("bitwise", attributes)


def _compare(data: bytes, operator: int = EQUAL) -> Expression:
    return _expression("cmp", {"sreg": REGISTER, "op": operator, "data": _value(data)})


def _verdict(code: int, chain: str = "") -> Expression:
    verdict = [("NFTA_VERDICT_CODE", code), *([("NFTA_VERDICT_CHAIN", chain)] if chain else [])]
    return _expression(
        "immediate", {"dreg": VERDICT_REGISTER, "data": {"attrs": [("NFTA_DATA_VERDICT", {"attrs": verdict})]}}
    )


def _expression(name: str, attributes: Mapping[str, Any]) -> Expression:
    expression: Expression = genex(name, attributes)
    return expression
