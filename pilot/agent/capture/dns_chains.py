"""Capture of DNS: queries of applications are redirected to the agent.

Conntrack zones separate the connections of applications from those of the agent.
"""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.capture_rules import (
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
from pilot.agent.capture.owner_matches import proxy_owners

PORT, AGENT_PORT = 53, 15053
OUTPUT_CHAIN, ANSWER_CHAIN = "ISTIO_OUTPUT_DNS", "ISTIO_PRERT_DNS"
UPSTREAM_ZONE, APPLICATION_ZONE = CaptureAction(Verb.ZONE, 1), CaptureAction(Verb.ZONE, 2)
"""Without zones, conntrack would confuse a query of the agent with a query of the application that has the same source
port and server."""


def build_chains(config: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    """Yield the chains for queries and answers. Yield nothing if no server has this family."""
    servers = list(_server_matches(config, family, CaptureField.DESTINATION))
    if not servers:
        return
    to_agent = CaptureAction(Verb.REDIRECT, AGENT_PORT)
    is_query = match(CaptureField.DESTINATION_PORT, PORT)
    yield CaptureChain(
        CaptureTable.NAT,
        OUTPUT_CHAIN,
        tuple(
            CaptureRule(to_agent, (is_query, *server), protocol) for protocol in ("tcp", "udp") for server in servers
        ),
    )
    yield CaptureChain(
        CaptureTable.RAW,
        OUTPUT_CHAIN,
        (
            *(CaptureRule(UPSTREAM_ZONE, (is_query, owner), "udp") for owner in proxy_owners(config)),
            *(
                CaptureRule(APPLICATION_ZONE, (match(CaptureField.SOURCE_PORT, AGENT_PORT), owner), "udp")
                for owner in proxy_owners(config)
            ),
            *(CaptureRule(APPLICATION_ZONE, (is_query, *server), "udp") for server in servers),
        ),
        Hook.OUTPUT,
    )
    answers = [
        CaptureRule(UPSTREAM_ZONE, (match(CaptureField.SOURCE_PORT, PORT), *server), "udp")
        for server in _server_matches(config, family, CaptureField.SOURCE)
    ]
    yield CaptureChain(CaptureTable.RAW, ANSWER_CHAIN, tuple(answers), Hook.PREROUTING)


def jump_rules(config: CaptureConfig, family: Family) -> Iterator[CaptureRule]:
    """Yield the rule that jumps to the chain for queries. Yield nothing if there is no such chain."""
    if any(True for _ in _server_matches(config, family, CaptureField.DESTINATION)):
        yield CaptureRule(jump(OUTPUT_CHAIN))


def _server_matches(config: CaptureConfig, family: Family, field: CaptureField) -> Iterator[tuple[Match, ...]]:
    """Yield the matches for each server, or one empty tuple if the queries to all servers are captured."""
    servers = config.name_servers
    if servers is not None and servers.all:
        yield ()
    elif servers is not None:
        yield from ((match(field, server),) for server in servers.of_family(family))
