"""Whose traffic it is: the proxy's own, and that of applications that are not captured. And what never leaves this machine."""
from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from pilot.agent.capture.rules import RETURN, Family, Field, Match, Network, Rule, match, unless
from pilot.agent.capture.wanted import Wanted

LOOPBACK = match(Field.OUTPUT, "lo")


def owners(wanted: Wanted) -> Iterator[Match]:
    """Yields what the proxy is known by: each of its users and groups."""
    yield from (match(Field.USER, user) for user in wanted.users)
    yield from (match(Field.GROUP, group) for group in wanted.groups_of_proxy)


def others(wanted: Wanted) -> tuple[Match, ...]:
    """Returns what holds of everybody but the proxy."""
    return tuple(Match(owner.field, owner.values, negated=True) for owner in owners(wanted))


def uncaptured_groups(wanted: Wanted) -> Iterator[Rule]:
    """Yields what leaves applications alone by their group."""
    alone, groups = wanted.groups
    if alone:
        yield Rule(RETURN, tuple(unless(Field.GROUP, group) for group in groups))
    else:
        yield from (Rule(RETURN, (match(Field.GROUP, group),)) for group in groups)


def inbound_source(family: Family) -> Network:
    """Returns the address from which Envoy connects to the application for a caller, by which that is known."""
    return ipaddress.ip_network("127.0.0.6/32" if family is Family.V4 else "::6/128")
