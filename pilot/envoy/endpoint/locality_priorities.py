"""Assigns priorities or weights to groups of endpoints, depending on their distance from the client."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pilot.config.networking.destination_rule import Distribute, Failover
from pilot.envoy.endpoint.client_location import ClientLocationKey, label_distance
from pilot.envoy.endpoint.endpoint_policy import LocalityBalancing
from pilot.envoy.endpoint.lb_endpoint import LocalityMember
from pilot.envoy.endpoint.locality_group import LocalityGroup
from pilot.lib.labels import split_locality
from pilot.mesh.model.endpoint import Locality

_LOCALITY_STEPS, _REGION_STEPS = 5, 3


def arrange_by_locality(
    groups: list[LocalityGroup], balancing: LocalityBalancing, client: ClientLocationKey
) -> list[LocalityGroup]:
    """Return the groups with the priorities or weights for a client.

    A group is split if members in the same locality have different distances.
    """
    if balancing.distribute:
        distribute(groups, balancing.distribute, client.locality)
        return groups
    if balancing.failover_priority:
        groups = [part for g in groups for part in _split(g, balancing.failover_priority, client.label_values)]
        _renumber(groups)
    if balancing.by_region:
        _rank(
            groups,
            _REGION_STEPS,
            [_region_rank(g.locality, client.locality, balancing.failover) for g in groups],
        )
    elif balancing.by_locality:
        _rank(
            groups,
            _LOCALITY_STEPS,
            [_locality_rank(g.locality, client.locality, balancing.failover) for g in groups],
        )
    return groups


# -- weights ---------------------------------------------------------------------------------------


def distribute(groups: list[LocalityGroup], rules: Iterable[Distribute], client: Locality) -> None:
    """Set the weights of the first rule for the client's locality. Localities without a weight lose their endpoints."""
    rule = next((r for r in rules if matches(client, r.from_)), None)
    if rule is None:
        return
    remaining = list(groups)
    for pattern, weight in rule.to.items():
        matching = [g for g in remaining if matches(g.locality, pattern)]
        remaining = [g for g in remaining if not matches(g.locality, pattern)]
        total = sum(g.weight or 1 for g in matching)
        for g in matching:
            if share := math.ceil((g.weight or 1) * weight / total):
                g.weight = share
    for g in remaining:
        g.members = []


def matches(locality: Locality, pattern: str) -> bool:
    """Return whether a locality matches a pattern of the form "region/zone/subzone".

    "*" and missing trailing levels match any value.
    """
    region, zone, subzone = split_locality(pattern)
    return (
        region in ("*", locality.region) and zone in ("*", "", locality.zone) and subzone in ("*", "", locality.subzone)
    )


# -- priorities ------------------------------------------------------------------------------------


def _split(group: LocalityGroup, failover_priority: tuple[str, ...], client: tuple[str, ...]) -> list[LocalityGroup]:
    """Return the members of a group, regrouped by distance. The distance is the priority of the resulting group."""
    by_distance: dict[int, list[LocalityMember]] = {}
    for member in group.members:
        by_distance.setdefault(label_distance(member.endpoint, failover_priority, client), []).append(member)
    parts = [LocalityGroup(group.locality, by_distance[d], d) for d in sorted(by_distance)]
    for part in parts:
        part.weigh()
    return parts


def _locality_rank(locality: Locality, client: Locality, failover: Iterable[Failover]) -> int:
    """Return the rank of a locality for a client.

    The rank is 0 in the same subzone, 1 in the same zone, and 2 in the same region. In other regions, it is usually 3.
    If a failover rule names a region for the client's region, the rank is 3 in that region and 4 in all others.
    """
    if locality.region == client.region:
        if locality.zone != client.zone:
            return 2
        return 0 if locality.subzone == client.subzone else 1
    preferred = next((f.to for f in failover if f.from_ == client.region), None)
    return 3 if preferred in (None, locality.region) else 4


def _region_rank(locality: Locality, client: Locality, failover: Iterable[Failover]) -> int:
    """Return 0 for the client's region, 1 for the region that a failover rule names for it, and 2 for other regions."""
    if locality.region == client.region:
        return 0
    return 1 if next((f.to for f in failover if f.from_ == client.region), None) == locality.region else 2


def _rank(groups: list[LocalityGroup], steps: int, ranks: list[int]) -> None:
    """Set the priorities. Groups are ordered by their existing priority first, and then by rank."""
    for group, rank in zip(groups, ranks, strict=True):
        group.priority = group.priority * steps + rank
    _renumber(groups)


def _renumber(groups: list[LocalityGroup]) -> None:
    """Renumber the priorities from 0 without gaps, as Envoy requires."""
    order = {p: i for i, p in enumerate(sorted({g.priority for g in groups}))}
    for g in groups:
        g.priority = order[g.priority]
