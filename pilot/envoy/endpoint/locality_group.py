"""A group of endpoints with the same locality and priority."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import msgspec
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2

from pilot.envoy.endpoint.lb_endpoint import LbEndpointOptions, LocalityMember, fill_lb_endpoint
from pilot.mesh.model.endpoint import Locality

STEP = 256
"""Number of endpoints that are built at once, which takes about a millisecond."""
MAX_WEIGHT = 2**32 - 1


class LocalityGroup(msgspec.Struct):
    """A group of endpoints that several steps modify in turn. It is never shared. A `weight` of None is unset."""

    locality: Locality
    members: list[LocalityMember]
    priority: int = 0
    weight: int | None = None

    def weigh(self) -> None:
        """Set the weight to the sum of the members' weights, or to None if there are no members."""
        self.weight = min(sum(m.weight for m in self.members), MAX_WEIGHT) if self.members else None

    def fill(
        self, message: endpoint_components_pb2.LocalityLbEndpoints, lb_options: LbEndpointOptions
    ) -> Iterator[None]:
        """Fill an empty message with the group. Yield between endpoints."""
        locality = message.locality
        locality.SetInParent()
        locality.region, locality.zone, locality.sub_zone = (
            self.locality.region,
            self.locality.zone,
            self.locality.subzone,
        )
        for number, member in enumerate(self.members):
            fill_lb_endpoint(message.lb_endpoints.add(), member, lb_options)
            if number % STEP == STEP - 1:
                yield
        if self.weight is not None:
            message.load_balancing_weight.value = self.weight
        message.priority = self.priority


def group_by_locality(members: Iterable[LocalityMember]) -> list[LocalityGroup]:
    """Return the members grouped by locality. Groups are sorted by the name of the locality."""
    groups: dict[str, LocalityGroup] = {}
    for member in members:
        e = member.endpoint
        group = groups.get(e.locality_text)
        if group is None:
            group = groups[e.locality_text] = LocalityGroup(e.locality, [])
        group.members.append(member)
    ordered = [groups[text] for text in sorted(groups)]
    for group in ordered:
        group.weigh()
    return ordered


def build_assignment(
    name: str, groups: Iterable[LocalityGroup], lb_options: LbEndpointOptions
) -> Generator[None, None, endpoint_pb2.ClusterLoadAssignment]:
    """Return the assignment of a cluster with these groups of endpoints."""
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    for group in groups:
        yield from group.fill(assignment.endpoints.add(), lb_options)
    return assignment
