"""What leaves the pod, and what its virtual machines send: TCP goes to Envoy, but what Envoy sends."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import dns_chains as names
from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.owner_matches import LOOPBACK, inbound_source, others, owners, uncaptured_groups
from pilot.agent.capture.rule_language import (
    RETURN,
    CaptureAction,
    CaptureChain,
    CaptureField,
    CaptureRule,
    CaptureTable,
    Family,
    Hook,
    Match,
    Verb,
    jump,
    match,
    unless,
)

TO_OUTBOUND, TO_INBOUND = "ISTIO_REDIRECT", "ISTIO_IN_REDIRECT"
CHAIN, ARRIVING = "ISTIO_OUTPUT", "ISTIO_PRERT"


def chains(wanted: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    """Yields what is jumped to, then the chain of what is sent."""
    yield CaptureChain(
        CaptureTable.NAT,
        TO_OUTBOUND,
        (CaptureRule(CaptureAction(Verb.REDIRECT, wanted.outbound_port), protocol="tcp"),),
    )
    yield CaptureChain(CaptureTable.NAT, CHAIN, tuple(_sent(wanted, family)), Hook.OUTPUT)


def from_virtual_machines(wanted: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    """Yields the rules of what comes in from virtual machines, which leaves the pod."""
    for interface in wanted.virtual_interfaces:
        arrives = match(CaptureField.INPUT, interface)
        for rule in _captured_networks(wanted, family):
            yield CaptureRule(rule.action, (arrives, *rule.matches))
        yield CaptureRule(RETURN, (arrives,))


def _sent(wanted: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    for interface in wanted.excluded_interfaces:
        yield CaptureRule(RETURN, (match(CaptureField.OUTPUT, interface),))
    for port in wanted.not_outbound_ports:
        yield from (
            CaptureRule(RETURN, (match(CaptureField.DESTINATION_PORT, port),), protocol) for protocol in ("tcp", "udp")
        )
    yield CaptureRule(RETURN, (LOOPBACK, match(CaptureField.SOURCE, inbound_source(family))))
    if wanted.transparent is not None:
        yield CaptureRule(
            RETURN, (match(CaptureField.MARK, wanted.transparent.mark),)
        )  # Envoy's to the application, in the name of the caller
    yield from _own_machine(wanted, family)
    yield from (CaptureRule(RETURN, (owner,)) for owner in owners(wanted))
    yield from uncaptured_groups(wanted)
    yield from names.captured(wanted, family)
    yield CaptureRule(RETURN, (match(CaptureField.DESTINATION, wanted.loopback_of(family)),))
    yield from (
        CaptureRule(RETURN, (match(CaptureField.DESTINATION, network),)) for network in wanted.not_outbound.of(family)
    )
    yield from (
        CaptureRule(jump(TO_OUTBOUND), (match(CaptureField.DESTINATION_PORT, port),), "tcp")
        for port in wanted.outbound_ports
    )
    yield from _captured_networks(wanted, family)


def _own_machine(wanted: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    """Yields the rules of connections that stay on this machine. A pod that calls its own service is one: its Envoy sends them to itself.

    What applications send to themselves directly is left alone, but where 127.0.0.0/8 is asked for. Questions for names are none of it.
    """
    alone = (names.PORT, wanted.tunnel_port) if wanted.name_servers else (wanted.tunnel_port,)
    elsewhere = unless(CaptureField.DESTINATION, wanted.loopback_of(family))
    for owner in owners(wanted):
        yield CaptureRule(
            jump(TO_INBOUND), (LOOPBACK, elsewhere, unless(CaptureField.DESTINATION_PORT, *alone), owner), "tcp"
        )
    if not any(network.is_loopback for network in wanted.outbound.networks):
        if wanted.name_servers:
            yield CaptureRule(
                RETURN, (LOOPBACK, unless(CaptureField.DESTINATION_PORT, names.PORT), *others(wanted)), "tcp"
            )
        else:
            yield CaptureRule(RETURN, (LOOPBACK, *others(wanted)))


def _captured_networks(wanted: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    if wanted.outbound.all:
        yield CaptureRule(jump(TO_OUTBOUND))
    for network in wanted.outbound.of(family):
        matches: tuple[Match, ...] = (match(CaptureField.DESTINATION, network),)
        yield CaptureRule(jump(TO_OUTBOUND), matches)
