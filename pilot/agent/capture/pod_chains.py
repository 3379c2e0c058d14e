"""The rules of a pod, of one family of addresses. Chains have the names that Istio's have, so that whoever looks at a pod finds them."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import dns_chains as names
from pilot.agent.capture import inbound_chains as inbound
from pilot.agent.capture import outbound_chains as outbound
from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.rule_language import CaptureChain, Family


def build_chains(wanted: CaptureConfig, family: Family) -> tuple[CaptureChain, ...]:
    """Returns every chain that has rules; a chain comes after those that it jumps to."""
    return tuple(chain for chain in _chains(wanted, family) if chain.rules)


def _chains(wanted: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    yield from names.chains(wanted, family)
    yield from inbound.chains(wanted, family)
    yield from outbound.chains(wanted, family)
