"""Whose traffic it is: the proxy's own, and that of applications that are not captured. And what never leaves this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.rule_language import RETURN, CaptureField, CaptureRule, Family, Match, Network, match, unless

LOOPBACK = match(CaptureField.OUTPUT, "lo")


def owners(wanted: CaptureConfig) -> Iterator[Match]:
    """Yields what the proxy is known by: each of its users and groups."""
    yield from (match(CaptureField.USER, user) for user in wanted.users)
    yield from (match(CaptureField.GROUP, group) for group in wanted.groups_of_proxy)


def others(wanted: CaptureConfig) -> tuple[Match, ...]:
    """Returns what holds of everybody but the proxy."""
    return tuple(Match(owner.field, owner.values, negated=True) for owner in owners(wanted))


def uncaptured_groups(wanted: CaptureConfig) -> Iterator[CaptureRule]:
    """Yields what leaves applications alone by their group."""
    alone, groups = wanted.groups
    if alone:
        yield CaptureRule(RETURN, tuple(unless(CaptureField.GROUP, group) for group in groups))
    else:
        yield from (CaptureRule(RETURN, (match(CaptureField.GROUP, group),)) for group in groups)


def inbound_source(family: Family) -> Network:
    """Returns the address from which Envoy connects to the application for a caller, by which that is known."""
    return ipaddress.ip_network("127.0.0.6/32" if family is Family.V4 else "::6/128")
