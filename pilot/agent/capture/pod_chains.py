"""All chains of a pod for one IP family. They have the same names as Istio's chains, which operators know."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import dns_chains, inbound_chains, outbound_chains
from pilot.agent.capture.capture_config import CaptureConfig
from pilot.agent.capture.capture_rules import CaptureChain, Family


def build_pod_chains(config: CaptureConfig, family: Family) -> tuple[CaptureChain, ...]:
    """Return all chains that have rules. A chain comes after those that it jumps to."""
    return tuple(chain for chain in _chains(config, family) if chain.rules)


def _chains(config: CaptureConfig, family: Family) -> Iterator[CaptureChain]:
    yield from dns_chains.build_chains(config, family)
    yield from inbound_chains.build_chains(config, family)
    yield from outbound_chains.build_chains(config, family)
