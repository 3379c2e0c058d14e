"""What comes into the pod: TCP goes to Envoy. With TPROXY it does so with the address of the caller, and so come the answers."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import outbound_chains as outbound
from pilot.agent.capture.capture_config import CaptureConfig, Transparent
from pilot.agent.capture.owner_matches import LOOPBACK, inbound_source, owners
from pilot.agent.capture.rule_language import (
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
    Verb,
    jump,
    match,
    unless,
)

CHAIN, MARKING, TRANSPARENT = "ISTIO_INBOUND", "ISTIO_DIVERT", "ISTIO_TPROXY"
OUTBOUND_MARK = 1338
"""Marks what Envoy sends to its own pod, so that it comes in like that of others."""


def chains(wanted: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    """Yields what is jumped to, then the chains of what arrives, and with TPROXY of answers."""
    yield CaptureChain(
        CaptureTable.NAT,
        outbound.TO_INBOUND,
        (CaptureRule(CaptureAction(Verb.REDIRECT, wanted.inbound_port), protocol="tcp"),),
    )
    captured = wanted.inbound.all or bool(wanted.inbound.numbers)
    if wanted.transparent is not None and captured:
        yield from _transparent(wanted, wanted.transparent, family)
    elif captured:
        yield CaptureChain(
            CaptureTable.NAT, CHAIN, tuple(_by_port(wanted, (CaptureRule(jump(outbound.TO_INBOUND), protocol="tcp"),)))
        )
    mangled = wanted.transparent if captured else None
    yield CaptureChain(CaptureTable.MANGLE, outbound.ARRIVING, tuple(_mangled(wanted, mangled)), Hook.PREROUTING)
    yield CaptureChain(CaptureTable.NAT, outbound.ARRIVING, tuple(_arriving(wanted, family, captured)), Hook.PREROUTING)


def _arriving(wanted: CaptureConfig, family: Family, captured: bool) -> Iterator[CaptureRule]:
    yield from outbound.from_virtual_machines(wanted, family)
    if captured and wanted.transparent is None:
        yield from _excluded(wanted)
        yield CaptureRule(jump(CHAIN), protocol="tcp")


def _excluded(wanted: CaptureConfig) -> Iterator[CaptureRule]:
    for interface in wanted.excluded_interfaces:
        yield CaptureRule(RETURN, (match(CaptureField.INPUT, interface),))


def _by_port(wanted: CaptureConfig, then: tuple[CaptureRule, ...]) -> Iterator[CaptureRule]:
    """Yields the rules `then` for the ports that are captured."""
    ports = wanted.inbound
    for port in (wanted.tunnel_port, *(wanted.not_inbound if ports.all else ())):
        yield CaptureRule(RETURN, (match(CaptureField.DESTINATION_PORT, port),), "tcp")
    if ports.all:
        yield from then
    for port in ports.numbers:
        yield from (
            CaptureRule(rule.action, (match(CaptureField.DESTINATION_PORT, port), *rule.matches), "tcp")
            for rule in then
        )


def _mangled(wanted: CaptureConfig, transparent: Transparent | None) -> Iterator[CaptureRule]:
    if wanted.drop_invalid:
        yield CaptureRule(DROP, (match(CaptureField.STATE, "INVALID"),))
    if transparent is not None:
        yield from _excluded(wanted)
        yield CaptureRule(jump(CHAIN), protocol="tcp")
        yield CaptureRule(CaptureAction(Verb.SAVE_MARK), (match(CaptureField.MARK, transparent.mark),), "tcp")


def _transparent(wanted: CaptureConfig, transparent: Transparent, family: Family) -> Iterator[CaptureChain]:
    """Yields the chains by which packets reach Envoy's socket as they are. Packets of a connection get the mark by which they are routed to
    this machine; a new connection is given to Envoy's socket, and where that is not there to nobody."""
    elsewhere = unless(CaptureField.DESTINATION, wanted.loopback_of(family))
    taken = CaptureAction(Verb.TPROXY, wanted.inbound_port, transparent.mark)
    yield CaptureChain(
        CaptureTable.MANGLE,
        TRANSPARENT,
        (CaptureRule(taken, (elsewhere,), "tcp"), CaptureRule(DROP, (elsewhere,), "tcp")),
    )
    yield CaptureChain(
        CaptureTable.MANGLE, MARKING, (CaptureRule(CaptureAction(Verb.MARK, transparent.mark)), CaptureRule(ACCEPT))
    )
    comes_back = match(CaptureField.INPUT, "lo")
    known = CaptureRule(jump(MARKING), (match(CaptureField.STATE, "RELATED", "ESTABLISHED"),), "tcp")
    yield CaptureChain(
        CaptureTable.MANGLE,
        CHAIN,
        (
            CaptureRule(
                RETURN, (match(CaptureField.MARK, transparent.mark),), "tcp"
            ),  # Envoy's to the application, in the name of the caller
            CaptureRule(RETURN, (match(CaptureField.SOURCE, inbound_source(family)), comes_back), "tcp"),
            CaptureRule(
                RETURN, (comes_back, unless(CaptureField.MARK, OUTBOUND_MARK)), "tcp"
            ),  # the application's to itself
            *_by_port(wanted, (known, CaptureRule(jump(TRANSPARENT), protocol="tcp"))),
        ),
    )
    yield CaptureChain(CaptureTable.MANGLE, outbound.CHAIN, tuple(_answers(wanted, transparent, family)), Hook.OUTPUT)


def _answers(wanted: CaptureConfig, transparent: Transparent, family: Family) -> Iterator[CaptureRule]:
    for interface in wanted.excluded_interfaces:
        yield CaptureRule(RETURN, (match(CaptureField.OUTPUT, interface),))
    elsewhere = unless(CaptureField.DESTINATION, wanted.loopback_of(family))
    yield CaptureRule(RETURN, (LOOPBACK, match(CaptureField.MARK, transparent.mark)), "tcp")
    for owner in owners(wanted):
        yield CaptureRule(CaptureAction(Verb.MARK, OUTBOUND_MARK), (LOOPBACK, elsewhere, owner), "tcp")
    yield CaptureRule(CaptureAction(Verb.RESTORE_MARK), (match(CaptureField.CONNECTION_MARK, transparent.mark),), "tcp")
