"""Matches on the owner of traffic: the proxy, and applications that are excluded from capture."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.capture_rules import RETURN, CaptureField, CaptureRule, Family, Match, Network, match, unless

VIA_LOOPBACK = match(CaptureField.OUTPUT, "lo")


def proxy_owners(config: CaptureConfig) -> Iterator[Match]:
    """Yield a match for each user and group of the proxy."""
    yield from (match(CaptureField.USER, user) for user in config.proxy_users)
    yield from (match(CaptureField.GROUP, group) for group in config.proxy_groups)


def other_owners(config: CaptureConfig) -> tuple[Match, ...]:
    """Return the matches that together select all owners except the proxy."""
    return tuple(Match(owner.field, owner.values, negated=True) for owner in proxy_owners(config))


def excluded_group_rules(config: CaptureConfig) -> Iterator[CaptureRule]:
    """Yield the rules that exclude applications from capture because of their group."""
    include, groups = config.owner_groups
    if include:
        yield CaptureRule(RETURN, tuple(unless(CaptureField.GROUP, group) for group in groups))
    else:
        yield from (CaptureRule(RETURN, (match(CaptureField.GROUP, group),)) for group in groups)


def inbound_passthrough_source(family: Family) -> Network:
    """Return the source address of connections from Envoy to the application on behalf of inbound clients."""
    return ipaddress.ip_network("127.0.0.6/32" if family is Family.V4 else "::6/128")
