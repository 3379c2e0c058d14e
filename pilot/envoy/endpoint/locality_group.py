"""Holds the endpoints of one locality and priority while they are arranged."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2

from pilot.envoy.endpoint.lb_endpoint import LbEndpointOptions, LocalityMember, fill_lb_endpoint
from pilot.mesh.model.endpoint import Locality

MAX_WEIGHT = 2**32 - 1


class LocalityGroup(msgspec.Struct):
    """Is filled by one step after the other and never shared. `weight` None: not said."""

    locality: Locality
    members: list[LocalityMember]
    priority: int = 0
    weight: int | None = None

    def weigh(self) -> None:
        """Sets the weight to that of the members together; without members there is none."""
        self.weight = min(sum(m.weight for m in self.members), MAX_WEIGHT) if self.members else None

    def fill(self, message: endpoint_components_pb2.LocalityLbEndpoints, show: LbEndpointOptions) -> None:
        """Fills an empty message."""
        where = message.locality
        where.SetInParent()
        where.region, where.zone, where.sub_zone = self.locality.region, self.locality.zone, self.locality.subzone
        for member in self.members:
            fill_lb_endpoint(message.lb_endpoints.add(), member, show)
        if self.weight is not None:
            message.load_balancing_weight.value = self.weight
        message.priority = self.priority


def group_by_locality(members: Iterable[LocalityMember]) -> list[LocalityGroup]:
    """Returns the members by their localities, as these were written, in their order."""
    groups: dict[str, LocalityGroup] = {}
    for member in members:
        e = member.endpoint
        group = groups.get(e.locality_text)
        if group is None:
            group = groups[e.locality_text] = LocalityGroup(e.locality, [])
        group.members.append(member)
    found = [groups[text] for text in sorted(groups)]
    for group in found:
        group.weigh()
    return found


def build_assignment(
    name: str, groups: Iterable[LocalityGroup], show: LbEndpointOptions
) -> endpoint_pb2.ClusterLoadAssignment:
    """Returns the assignment of a cluster."""
    built = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    for group in groups:
        group.fill(built.endpoints.add(), show)
    return built
