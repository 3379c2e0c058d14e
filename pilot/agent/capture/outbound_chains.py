"""Capture of the outbound traffic of a pod and its virtual machines.

TCP connections are redirected to Envoy, except Envoy's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import dns_chains
from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.capture_rules import (
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
from pilot.agent.capture.owner_matches import (
    VIA_LOOPBACK,
    excluded_group_rules,
    inbound_passthrough_source,
    other_owners,
    proxy_owners,
)

OUTBOUND_REDIRECT, INBOUND_REDIRECT = "ISTIO_REDIRECT", "ISTIO_IN_REDIRECT"
OUTPUT_CHAIN, PREROUTING_CHAIN = "ISTIO_OUTPUT", "ISTIO_PRERT"


def build_chains(config: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    """Yield the chains for outbound traffic. Jump targets come first."""
    yield CaptureChain(
        CaptureTable.NAT,
        OUTBOUND_REDIRECT,
        (CaptureRule(CaptureAction(Verb.REDIRECT, config.outbound_port), protocol="tcp"),),
    )
    yield CaptureChain(CaptureTable.NAT, OUTPUT_CHAIN, tuple(_output_rules(config, family)), Hook.OUTPUT)


def virtual_machine_rules(config: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    """Yield the rules for traffic from virtual machines, which is outbound traffic of the pod."""
    for interface in config.virtual_interfaces:
        from_machine = match(CaptureField.INPUT, interface)
        for rule in _captured_network_rules(config, family):
            yield CaptureRule(rule.action, (from_machine, *rule.matches))
        yield CaptureRule(RETURN, (from_machine,))


def _output_rules(config: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    for interface in config.excluded_interfaces:
        yield CaptureRule(RETURN, (match(CaptureField.OUTPUT, interface),))
    for port in config.excluded_outbound_ports:
        yield from (
            CaptureRule(RETURN, (match(CaptureField.DESTINATION_PORT, port),), protocol) for protocol in ("tcp", "udp")
        )
    yield CaptureRule(RETURN, (VIA_LOOPBACK, match(CaptureField.SOURCE, inbound_passthrough_source(family))))
    if config.tproxy is not None:
        # Connections of Envoy to the application, with the client's address.
        yield CaptureRule(RETURN, (match(CaptureField.MARK, config.tproxy.mark),))
    yield from _loopback_rules(config, family)
    yield from (CaptureRule(RETURN, (owner,)) for owner in proxy_owners(config))
    yield from excluded_group_rules(config)
    yield from dns_chains.jump_rules(config, family)
    yield CaptureRule(RETURN, (match(CaptureField.DESTINATION, config.loopback(family)),))
    yield from (
        CaptureRule(RETURN, (match(CaptureField.DESTINATION, network),))
        for network in config.excluded_networks.of_family(family)
    )
    yield from (
        CaptureRule(jump(OUTBOUND_REDIRECT), (match(CaptureField.DESTINATION_PORT, port),), "tcp")
        for port in config.outbound_ports
    )
    yield from _captured_network_rules(config, family)


def _loopback_rules(config: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    """Yield the rules for connections within this machine.

    If a pod calls its own service, Envoy's connection to itself is captured as inbound traffic. Direct connections of
    the application to itself are not captured unless the networks to capture include 127.0.0.0/8. DNS queries are
    excluded from these rules.
    """
    excluded_ports = (dns_chains.PORT, config.tunnel_port) if config.name_servers else (config.tunnel_port,)
    not_loopback = unless(CaptureField.DESTINATION, config.loopback(family))
    for owner in proxy_owners(config):
        yield CaptureRule(
            jump(INBOUND_REDIRECT),
            (VIA_LOOPBACK, not_loopback, unless(CaptureField.DESTINATION_PORT, *excluded_ports), owner),
            "tcp",
        )
    if not any(network.is_loopback for network in config.outbound.networks):
        if config.name_servers:
            yield CaptureRule(
                RETURN,
                (VIA_LOOPBACK, unless(CaptureField.DESTINATION_PORT, dns_chains.PORT), *other_owners(config)),
                "tcp",
            )
        else:
            yield CaptureRule(RETURN, (VIA_LOOPBACK, *other_owners(config)))


def _captured_network_rules(config: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    if config.outbound.all:
        yield CaptureRule(jump(OUTBOUND_REDIRECT))
    for network in config.outbound.of_family(family):
        matches: tuple[Match, ...] = (match(CaptureField.DESTINATION, network),)
        yield CaptureRule(jump(OUTBOUND_REDIRECT), matches)
