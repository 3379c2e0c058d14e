"""What comes into the pod: TCP goes to Envoy. With TPROXY it does so with the address of the caller, and so come the answers."""
from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import outbound
from pilot.agent.capture.owners import LOOPBACK, inbound_source, owners
from pilot.agent.capture.rules import ACCEPT, DROP, RETURN, Action, Chain, Family, Field, Hook, Rule, Table, Verb, jump, match, unless
from pilot.agent.capture.wanted import Transparent, Wanted

CHAIN, MARKING, TRANSPARENT = "ISTIO_INBOUND", "ISTIO_DIVERT", "ISTIO_TPROXY"
OUTBOUND_MARK = 1338
"""Marks what Envoy sends to its own pod, so that it comes in like that of others."""


def chains(wanted: Wanted, family: Family) -> Iterator[Chain]:
    """Yields what is jumped to, then the chains of what arrives, and with TPROXY of answers."""
    yield Chain(Table.NAT, outbound.TO_INBOUND, (Rule(Action(Verb.REDIRECT, wanted.inbound_port), protocol="tcp"),))
    captured = wanted.inbound.all or bool(wanted.inbound.numbers)
    if wanted.transparent is not None and captured:
        yield from _transparent(wanted, wanted.transparent, family)
    elif captured:
        yield Chain(Table.NAT, CHAIN, tuple(_by_port(wanted, (Rule(jump(outbound.TO_INBOUND), protocol="tcp"),))))
    mangled = wanted.transparent if captured else None
    yield Chain(Table.MANGLE, outbound.ARRIVING, tuple(_mangled(wanted, mangled)), Hook.PREROUTING)
    yield Chain(Table.NAT, outbound.ARRIVING, tuple(_arriving(wanted, family, captured)), Hook.PREROUTING)


def _arriving(wanted: Wanted, family: Family, captured: bool) -> Iterator[Rule]:
    yield from outbound.from_virtual_machines(wanted, family)
    if captured and wanted.transparent is None:
        yield from _excluded(wanted)
        yield Rule(jump(CHAIN), protocol="tcp")


def _excluded(wanted: Wanted) -> Iterator[Rule]:
    for interface in wanted.excluded_interfaces:
        yield Rule(RETURN, (match(Field.INPUT, interface),))


def _by_port(wanted: Wanted, then: tuple[Rule, ...]) -> Iterator[Rule]:
    """Yields the rules `then` for the ports that are captured."""
    ports = wanted.inbound
    for port in (wanted.tunnel_port, *(wanted.not_inbound if ports.all else ())):
        yield Rule(RETURN, (match(Field.DESTINATION_PORT, port),), "tcp")
    if ports.all:
        yield from then
    for port in ports.numbers:
        yield from (Rule(rule.action, (match(Field.DESTINATION_PORT, port), *rule.matches), "tcp") for rule in then)


def _mangled(wanted: Wanted, transparent: Transparent | None) -> Iterator[Rule]:
    if wanted.drop_invalid:
        yield Rule(DROP, (match(Field.STATE, "INVALID"),))
    if transparent is not None:
        yield from _excluded(wanted)
        yield Rule(jump(CHAIN), protocol="tcp")
        yield Rule(Action(Verb.SAVE_MARK), (match(Field.MARK, transparent.mark),), "tcp")


def _transparent(wanted: Wanted, transparent: Transparent, family: Family) -> Iterator[Chain]:
    """Yields the chains by which packets reach Envoy's socket as they are. Packets of a connection get the mark by which they are routed to
    this machine; a new connection is given to Envoy's socket, and where that is not there to nobody."""
    elsewhere = unless(Field.DESTINATION, wanted.loopback_of(family))
    taken = Action(Verb.TPROXY, wanted.inbound_port, transparent.mark)
    yield Chain(Table.MANGLE, TRANSPARENT, (Rule(taken, (elsewhere,), "tcp"), Rule(DROP, (elsewhere,), "tcp")))
    yield Chain(Table.MANGLE, MARKING, (Rule(Action(Verb.MARK, transparent.mark)), Rule(ACCEPT)))
    comes_back = match(Field.INPUT, "lo")
    known = Rule(jump(MARKING), (match(Field.STATE, "RELATED", "ESTABLISHED"),), "tcp")
    yield Chain(Table.MANGLE, CHAIN, (
        Rule(RETURN, (match(Field.MARK, transparent.mark),), "tcp"),  # Envoy's to the application, in the name of the caller
        Rule(RETURN, (match(Field.SOURCE, inbound_source(family)), comes_back), "tcp"),
        Rule(RETURN, (comes_back, unless(Field.MARK, OUTBOUND_MARK)), "tcp"),  # the application's to itself
        *_by_port(wanted, (known, Rule(jump(TRANSPARENT), protocol="tcp"))),
    ))  # fmt: skip
    yield Chain(Table.MANGLE, outbound.CHAIN, tuple(_answers(wanted, transparent, family)), Hook.OUTPUT)


def _answers(wanted: Wanted, transparent: Transparent, family: Family) -> Iterator[Rule]:
    for interface in wanted.excluded_interfaces:
        yield Rule(RETURN, (match(Field.OUTPUT, interface),))
    elsewhere = unless(Field.DESTINATION, wanted.loopback_of(family))
    yield Rule(RETURN, (LOOPBACK, match(Field.MARK, transparent.mark)), "tcp")
    for owner in owners(wanted):
        yield Rule(Action(Verb.MARK, OUTBOUND_MARK), (LOOPBACK, elsewhere, owner), "tcp")
    yield Rule(Action(Verb.RESTORE_MARK), (match(Field.CONNECTION_MARK, transparent.mark),), "tcp")
