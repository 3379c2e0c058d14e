"""Questions for names: those of applications go to the agent. Theirs and the agent's own are told apart in the table of connections."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.owner_matches import owners
from pilot.agent.capture.rule_language import (
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
)

PORT, AGENT_PORT = 53, 15053
CHAIN, ANSWERS = "ISTIO_OUTPUT_DNS", "ISTIO_PRERT_DNS"
UPSTREAM, APPLICATION = CaptureAction(Verb.ZONE, 1), CaptureAction(Verb.ZONE, 2)
"""The agent may ask the server that the application asked, from the port that this did: two connections that would look like one."""


def chains(wanted: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    """Yields the chains of questions and answers, where there are servers of this family of addresses."""
    servers = list(_servers(wanted, family, CaptureField.DESTINATION))
    if not servers:
        return
    to_agent = CaptureAction(Verb.REDIRECT, AGENT_PORT)
    asked = match(CaptureField.DESTINATION_PORT, PORT)
    yield CaptureChain(
        CaptureTable.NAT,
        CHAIN,
        tuple(CaptureRule(to_agent, (asked, *server), protocol) for protocol in ("tcp", "udp") for server in servers),
    )
    yield CaptureChain(
        CaptureTable.RAW,
        CHAIN,
        (
            *(CaptureRule(UPSTREAM, (asked, owner), "udp") for owner in owners(wanted)),
            *(
                CaptureRule(APPLICATION, (match(CaptureField.SOURCE_PORT, AGENT_PORT), owner), "udp")
                for owner in owners(wanted)
            ),
            *(CaptureRule(APPLICATION, (asked, *server), "udp") for server in servers),
        ),
        Hook.OUTPUT,
    )
    answers = [
        CaptureRule(UPSTREAM, (match(CaptureField.SOURCE_PORT, PORT), *server), "udp")
        for server in _servers(wanted, family, CaptureField.SOURCE)
    ]
    yield CaptureChain(CaptureTable.RAW, ANSWERS, tuple(answers), Hook.PREROUTING)


def captured(wanted: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    """Yields the rule by which questions are looked at."""
    if any(True for _ in _servers(wanted, family, CaptureField.DESTINATION)):
        yield CaptureRule(jump(CHAIN))


def _servers(wanted: CaptureConfig, family: Family, field: CaptureField) -> Iterator[tuple[Match, ...]]:
    """Yields what holds of each server."""
    servers = wanted.name_servers
    if servers is not None and servers.all:
        yield ()
    elif servers is not None:
        yield from ((match(field, server),) for server in servers.of(family))
