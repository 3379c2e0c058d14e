"""Capture of inbound traffic: TCP connections are redirected to Envoy.

In TPROXY mode, Envoy sees the client's address, and the application's answers return through Envoy.
"""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import outbound_chains
from pilot.agent.capture.capture_config import CaptureConfig, Tproxy
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
    Verb,
    jump,
    match,
    unless,
)
from pilot.agent.capture.owner_matches import VIA_LOOPBACK, inbound_passthrough_source, proxy_owners

INBOUND_CHAIN, DIVERT_CHAIN, TPROXY_CHAIN = "ISTIO_INBOUND", "ISTIO_DIVERT", "ISTIO_TPROXY"
OUTBOUND_MARK = 1338
"""Mark for packets from Envoy to its own pod, which are captured in the same way as packets from other clients."""


def build_chains(config: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    """Yield the chains for inbound traffic. In TPROXY mode, yield also those for answers. Jump targets come first."""
    yield CaptureChain(
        CaptureTable.NAT,
        outbound_chains.INBOUND_REDIRECT,
        (CaptureRule(CaptureAction(Verb.REDIRECT, config.inbound_port), protocol="tcp"),),
    )
    captures = config.inbound.all or bool(config.inbound.numbers)
    if config.tproxy is not None and captures:
        yield from _tproxy_chains(config, config.tproxy, family)
    elif captures:
        redirect = CaptureRule(jump(outbound_chains.INBOUND_REDIRECT), protocol="tcp")
        yield CaptureChain(CaptureTable.NAT, INBOUND_CHAIN, tuple(_by_port(config, (redirect,))))
    tproxy = config.tproxy if captures else None
    yield CaptureChain(
        CaptureTable.MANGLE, outbound_chains.PREROUTING_CHAIN, tuple(_mangle_rules(config, tproxy)), Hook.PREROUTING
    )
    yield CaptureChain(
        CaptureTable.NAT,
        outbound_chains.PREROUTING_CHAIN,
        tuple(_nat_rules(config, family, captures)),
        Hook.PREROUTING,
    )


def _nat_rules(config: CaptureConfig, family: Family, captures: bool) -> Iterator[CaptureRule]:
    yield from outbound_chains.virtual_machine_rules(config, family)
    if captures and config.tproxy is None:
        yield from _excluded_interface_rules(config)
        yield CaptureRule(jump(INBOUND_CHAIN), protocol="tcp")


def _excluded_interface_rules(config: CaptureConfig) -> Iterator[CaptureRule]:
    for interface in config.excluded_interfaces:
        yield CaptureRule(RETURN, (match(CaptureField.INPUT, interface),))


def _by_port(config: CaptureConfig, rules: tuple[CaptureRule, ...]) -> Iterator[CaptureRule]:
    """Yield the rules, restricted to the ports to capture."""
    ports = config.inbound
    for port in (config.tunnel_port, *(config.excluded_inbound_ports if ports.all else ())):
        yield CaptureRule(RETURN, (match(CaptureField.DESTINATION_PORT, port),), "tcp")
    if ports.all:
        yield from rules
    for port in ports.numbers:
        yield from (
            CaptureRule(rule.action, (match(CaptureField.DESTINATION_PORT, port), *rule.matches), "tcp")
            for rule in rules
        )


def _mangle_rules(config: CaptureConfig, tproxy: Tproxy | None) -> Iterator[CaptureRule]:
    if config.drop_invalid:
        yield CaptureRule(DROP, (match(CaptureField.STATE, "INVALID"),))
    if tproxy is not None:
        yield from _excluded_interface_rules(config)
        yield CaptureRule(jump(INBOUND_CHAIN), protocol="tcp")
        yield CaptureRule(CaptureAction(Verb.SAVE_MARK), (match(CaptureField.MARK, tproxy.mark),), "tcp")


def _tproxy_chains(config: CaptureConfig, tproxy: Tproxy, family: Family) -> Iterator[CaptureChain]:
    """Yield the chains that deliver packets to Envoy's socket without modifying them.

    Packets of existing connections are marked, and the mark routes them to this machine. A new connection is assigned
    to Envoy's socket, or dropped if Envoy does not listen.
    """
    not_loopback = unless(CaptureField.DESTINATION, config.loopback(family))
    assign = CaptureAction(Verb.TPROXY, config.inbound_port, tproxy.mark)
    yield CaptureChain(
        CaptureTable.MANGLE,
        TPROXY_CHAIN,
        (CaptureRule(assign, (not_loopback,), "tcp"), CaptureRule(DROP, (not_loopback,), "tcp")),
    )
    yield CaptureChain(
        CaptureTable.MANGLE, DIVERT_CHAIN, (CaptureRule(CaptureAction(Verb.MARK, tproxy.mark)), CaptureRule(ACCEPT))
    )
    via_loopback = match(CaptureField.INPUT, "lo")
    divert = CaptureRule(jump(DIVERT_CHAIN), (match(CaptureField.STATE, "RELATED", "ESTABLISHED"),), "tcp")
    yield CaptureChain(
        CaptureTable.MANGLE,
        INBOUND_CHAIN,
        (
            # Connections of Envoy to the application, with the client's address.
            CaptureRule(RETURN, (match(CaptureField.MARK, tproxy.mark),), "tcp"),
            CaptureRule(RETURN, (match(CaptureField.SOURCE, inbound_passthrough_source(family)), via_loopback), "tcp"),
            # Connections of the application to itself.
            CaptureRule(RETURN, (via_loopback, unless(CaptureField.MARK, OUTBOUND_MARK)), "tcp"),
            *_by_port(config, (divert, CaptureRule(jump(TPROXY_CHAIN), protocol="tcp"))),
        ),
    )
    yield CaptureChain(
        CaptureTable.MANGLE,
        outbound_chains.OUTPUT_CHAIN,
        tuple(_answer_rules(config, tproxy, family)),
        Hook.OUTPUT,
    )


def _answer_rules(config: CaptureConfig, tproxy: Tproxy, family: Family) -> Iterator[CaptureRule]:
    for interface in config.excluded_interfaces:
        yield CaptureRule(RETURN, (match(CaptureField.OUTPUT, interface),))
    not_loopback = unless(CaptureField.DESTINATION, config.loopback(family))
    yield CaptureRule(RETURN, (VIA_LOOPBACK, match(CaptureField.MARK, tproxy.mark)), "tcp")
    for owner in proxy_owners(config):
        yield CaptureRule(CaptureAction(Verb.MARK, OUTBOUND_MARK), (VIA_LOOPBACK, not_loopback, owner), "tcp")
    yield CaptureRule(CaptureAction(Verb.RESTORE_MARK), (match(CaptureField.CONNECTION_MARK, tproxy.mark),), "tcp")
