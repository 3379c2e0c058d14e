"""Settles domains that several virtual hosts would have: Envoy takes a route configuration only where each domain stands once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilot.envoy.route.domains import Domains

DEFAULT_PORT = 80
NEAR = "@"  # before the namespace whose clients alone may use a short name


class Contender(NamedTuple):
    """Holds a host and port, and the domains that it would have. `service`: its name is one that no other host may take for a short name."""

    key: tuple[str, int]
    service: bool
    domains: Domains


def settle(
    contenders: Iterable[Contender], contested: frozenset[str] | None
) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Returns what each has to do without: the first that wants a domain has it, a short name yields to the service of that very name.

    `contested`: the domains (in lower case) to settle. None: all of them, of a listener of all ports, where in addition names
    without a port are those of port 80.
    """
    all_contenders = list(contenders)
    known = {name for c in all_contenders if c.service for name in (c.key[0], f"{c.key[0]}:{c.key[1]}")}
    taken: set[str] = set()
    out: dict[tuple[str, int], tuple[str, ...]] = {}
    for key, _, domains in all_contenders:
        dropped: dict[str, None] = {}
        for name in domains.names:
            lower = name.lower()
            if contested is not None and lower not in contested and NEAR not in lower:
                continue
            if lower in taken or (name in domains.short and name in known):
                dropped[name.partition(NEAR)[0]] = None
            else:
                taken.add(lower)
        if contested is None and key[1] != DEFAULT_PORT:
            dropped |= dict.fromkeys(name for name in domains.names if ":" not in name)
        if dropped:
            out[key] = tuple(dropped)
    return out
