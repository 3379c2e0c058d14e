"""The rules of a pod, of one family of addresses. Chains have the names that Istio's have, so that whoever looks at a pod finds them."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import inbound, names, outbound
from pilot.agent.capture.rules import CaptureChain, Family
from pilot.agent.capture.wanted import WantedCapture


def build_chains(wanted: WantedCapture, family: Family) -> tuple[CaptureChain, ...]:
    """Returns every chain that has rules; a chain comes after those that it jumps to."""
    return tuple(chain for chain in _chains(wanted, family) if chain.rules)


def _chains(wanted: WantedCapture, family: Family) -> Iterator[CaptureChain]:
    yield from names.chains(wanted, family)
    yield from inbound.chains(wanted, family)
    yield from outbound.chains(wanted, family)
