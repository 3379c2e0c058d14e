"""What leaves the pod, and what its virtual machines send: TCP goes to Envoy, but what Envoy sends."""
from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import names
from pilot.agent.capture.owners import LOOPBACK, inbound_source, others, owners, uncaptured_groups
from pilot.agent.capture.rules import RETURN, Action, Chain, Family, Field, Hook, Match, Rule, Table, Verb, jump, match, unless
from pilot.agent.capture.wanted import Wanted

TO_OUTBOUND, TO_INBOUND = "ISTIO_REDIRECT", "ISTIO_IN_REDIRECT"
CHAIN, ARRIVING = "ISTIO_OUTPUT", "ISTIO_PRERT"


def chains(wanted: Wanted, family: Family) -> Iterator[Chain]:
    """Yields what is jumped to, then the chain of what is sent."""
    yield Chain(Table.NAT, TO_OUTBOUND, (Rule(Action(Verb.REDIRECT, wanted.outbound_port), protocol="tcp"),))
    yield Chain(Table.NAT, CHAIN, tuple(_sent(wanted, family)), Hook.OUTPUT)


def from_virtual_machines(wanted: Wanted, family: Family) -> Iterator[Rule]:
    """Yields the rules of what comes in from virtual machines, which leaves the pod."""
    for interface in wanted.virtual_interfaces:
        arrives = match(Field.INPUT, interface)
        for rule in _captured_networks(wanted, family):
            yield Rule(rule.action, (arrives, *rule.matches))
        yield Rule(RETURN, (arrives,))


def _sent(wanted: Wanted, family: Family) -> Iterator[Rule]:
    for interface in wanted.excluded_interfaces:
        yield Rule(RETURN, (match(Field.OUTPUT, interface),))
    for port in wanted.not_outbound_ports:
        yield from (Rule(RETURN, (match(Field.DESTINATION_PORT, port),), protocol) for protocol in ("tcp", "udp"))
    yield Rule(RETURN, (LOOPBACK, match(Field.SOURCE, inbound_source(family))))
    if wanted.transparent is not None:
        yield Rule(RETURN, (match(Field.MARK, wanted.transparent.mark),))  # Envoy's to the application, in the name of the caller
    yield from _own_machine(wanted, family)
    yield from (Rule(RETURN, (owner,)) for owner in owners(wanted))
    yield from uncaptured_groups(wanted)
    yield from names.captured(wanted, family)
    yield Rule(RETURN, (match(Field.DESTINATION, wanted.loopback_of(family)),))
    yield from (Rule(RETURN, (match(Field.DESTINATION, network),)) for network in wanted.not_outbound.of(family))
    yield from (Rule(jump(TO_OUTBOUND), (match(Field.DESTINATION_PORT, port),), "tcp") for port in wanted.outbound_ports)
    yield from _captured_networks(wanted, family)


def _own_machine(wanted: Wanted, family: Family) -> Iterator[Rule]:
    """Yields the rules of connections that stay on this machine. A pod that calls its own service is one: its Envoy sends them to itself.

    What applications send to themselves directly is left alone, but where 127.0.0.0/8 is asked for. Questions for names are none of it.
    """
    alone = (names.PORT, wanted.tunnel_port) if wanted.name_servers else (wanted.tunnel_port,)
    elsewhere = unless(Field.DESTINATION, wanted.loopback_of(family))
    for owner in owners(wanted):
        yield Rule(jump(TO_INBOUND), (LOOPBACK, elsewhere, unless(Field.DESTINATION_PORT, *alone), owner), "tcp")
    if not any(network.is_loopback for network in wanted.outbound.networks):
        if wanted.name_servers:
            yield Rule(RETURN, (LOOPBACK, unless(Field.DESTINATION_PORT, names.PORT), *others(wanted)), "tcp")
        else:
            yield Rule(RETURN, (LOOPBACK, *others(wanted)))


def _captured_networks(wanted: Wanted, family: Family) -> Iterator[Rule]:
    if wanted.outbound.all:
        yield Rule(jump(TO_OUTBOUND))
    for network in wanted.outbound.of(family):
        matches: tuple[Match, ...] = (match(Field.DESTINATION, network),)
        yield Rule(jump(TO_OUTBOUND), matches)
