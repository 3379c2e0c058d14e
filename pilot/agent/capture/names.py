"""Questions for names: those of applications go to the agent. Theirs and the agent's own are told apart in the table of connections."""
from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture.owners import owners
from pilot.agent.capture.rules import Action, Chain, Family, Field, Hook, Match, Rule, Table, Verb, jump, match
from pilot.agent.capture.wanted import Wanted

PORT, AGENT_PORT = 53, 15053
CHAIN, ANSWERS = "ISTIO_OUTPUT_DNS", "ISTIO_PRERT_DNS"
UPSTREAM, APPLICATION = Action(Verb.ZONE, 1), Action(Verb.ZONE, 2)
"""The agent may ask the server that the application asked, from the port that this did: two connections that would look like one."""


def chains(wanted: Wanted, family: Family) -> Iterator[Chain]:
    """Yields the chains of questions and answers, where there are servers of this family of addresses."""
    servers = list(_servers(wanted, family, Field.DESTINATION))
    if not servers:
        return
    to_agent = Action(Verb.REDIRECT, AGENT_PORT)
    asked = match(Field.DESTINATION_PORT, PORT)
    yield Chain(Table.NAT, CHAIN, tuple(Rule(to_agent, (asked, *server), protocol) for protocol in ("tcp", "udp") for server in servers))
    yield Chain(Table.RAW, CHAIN, (
        *(Rule(UPSTREAM, (asked, owner), "udp") for owner in owners(wanted)),
        *(Rule(APPLICATION, (match(Field.SOURCE_PORT, AGENT_PORT), owner), "udp") for owner in owners(wanted)),
        *(Rule(APPLICATION, (asked, *server), "udp") for server in servers),
    ), Hook.OUTPUT)  # fmt: skip
    answers = [Rule(UPSTREAM, (match(Field.SOURCE_PORT, PORT), *server), "udp") for server in _servers(wanted, family, Field.SOURCE)]
    yield Chain(Table.RAW, ANSWERS, tuple(answers), Hook.PREROUTING)


def captured(wanted: Wanted, family: Family) -> Iterator[Rule]:
    """Yields the rule by which questions are looked at."""
    if any(True for _ in _servers(wanted, family, Field.DESTINATION)):
        yield Rule(jump(CHAIN))


def _servers(wanted: Wanted, family: Family, field: Field) -> Iterator[tuple[Match, ...]]:
    """Yields what holds of each server."""
    servers = wanted.name_servers
    if servers is not None and servers.all:
        yield ()
    elif servers is not None:
        yield from ((match(field, server),) for server in servers.of(family))
