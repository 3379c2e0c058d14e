"""Gives groups of endpoints priorities, or weights, by how far they are from the client."""

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
    groups: list[LocalityGroup], balance: LocalityBalancing, client_location: ClientLocationKey
) -> list[LocalityGroup]:
    """Returns the groups arranged for a client; groups are split where members of one locality are not equally near."""
    if balance.distribute:
        distribute(groups, balance.distribute, client_location.locality)
        return groups
    if balance.failover_priority:
        groups = [part for g in groups for part in _split(g, balance.failover_priority, client_location.label_values)]
        _close_ranks(groups)
    if balance.by_region:
        _rank(
            groups,
            _REGION_STEPS,
            [_region_rank(g.locality, client_location.locality, balance.failover) for g in groups],
        )
    elif balance.by_locality:
        _rank(
            groups,
            _LOCALITY_STEPS,
            [_locality_rank(g.locality, client_location.locality, balance.failover) for g in groups],
        )
    return groups


# -- weights -----------------------------------------------------------------------------------------------------------------
def distribute(groups: list[LocalityGroup], rules: Iterable[Distribute], client: Locality) -> None:
    """Gives localities the weights that the first rule for the client's locality says; others lose their endpoints."""
    rule = next((r for r in rules if matches(client, r.from_)), None)
    if rule is None:
        return
    left = list(groups)
    for pattern, weight in rule.to.items():
        chosen = [g for g in left if matches(g.locality, pattern)]
        left = [g for g in left if not matches(g.locality, pattern)]
        total = sum(g.weight or 1 for g in chosen)
        for g in chosen:
            if share := math.ceil((g.weight or 1) * weight / total):
                g.weight = share
    for g in left:
        g.members = []


def matches(locality: Locality, pattern: str) -> bool:
    """Returns whether a locality is one of "region/zone/subzone", where "*" is any and a level missing at the end is too."""
    region, zone, subzone = split_locality(pattern)
    return (
        region in ("*", locality.region) and zone in ("*", "", locality.zone) and subzone in ("*", "", locality.subzone)
    )


# -- priorities --------------------------------------------------------------------------------------------------------------
def _split(group: LocalityGroup, asked: tuple[str, ...], client: tuple[str, ...]) -> list[LocalityGroup]:
    """Returns the members of a group by their distance, as groups of that priority."""
    by_distance: dict[int, list[LocalityMember]] = {}
    for member in group.members:
        by_distance.setdefault(label_distance(member.endpoint, asked, client), []).append(member)
    parts = [LocalityGroup(group.locality, by_distance[d], d) for d in sorted(by_distance)]
    for part in parts:
        part.weigh()
    return parts


def _locality_rank(locality: Locality, client: Locality, failover: Iterable[Failover]) -> int:
    """Returns 0 for the same subzone, 1 for the same zone, 2 for the same region, 3 for another; 4 where the rule for the client's region
    names one and this is not it."""
    if locality.region == client.region:
        if locality.zone != client.zone:
            return 2
        return 0 if locality.subzone == client.subzone else 1
    preferred = next((f.to for f in failover if f.from_ == client.region), None)
    return 3 if preferred in (None, locality.region) else 4


def _region_rank(locality: Locality, client: Locality, failover: Iterable[Failover]) -> int:
    """Returns 0 for the same region, 1 for that which the rule for the client's region names, 2 for another."""
    if locality.region == client.region:
        return 0
    return 1 if next((f.to for f in failover if f.from_ == client.region), None) == locality.region else 2


def _rank(groups: list[LocalityGroup], steps: int, ranks: list[int]) -> None:
    """Sets priorities by rank within the priorities that the groups have."""
    for group, rank in zip(groups, ranks, strict=True):
        group.priority = group.priority * steps + rank
    _close_ranks(groups)


def _close_ranks(groups: list[LocalityGroup]) -> None:
    """Renumbers the priorities from 0 without gaps, as Envoy wants them."""
    order = {p: i for i, p in enumerate(sorted({g.priority for g in groups}))}
    for g in groups:
        g.priority = order[g.priority]
