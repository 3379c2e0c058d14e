"""The rules of a pod, of one family of addresses. Chains have the names that Istio's have, so that whoever looks at a pod finds them."""
from __future__ import annotations

from collections.abc import Iterator

from pilot.agent.capture import inbound, names, outbound
from pilot.agent.capture.rules import Chain, Family
from pilot.agent.capture.wanted import Wanted


def build_chains(wanted: Wanted, family: Family) -> tuple[Chain, ...]:
    """Returns every chain that has rules; a chain comes after those that it jumps to."""
    return tuple(chain for chain in _chains(wanted, family) if chain.rules)


def _chains(wanted: Wanted, family: Family) -> Iterator[Chain]:
    yield from names.chains(wanted, family)
    yield from inbound.chains(wanted, family)
    yield from outbound.chains(wanted, family)
