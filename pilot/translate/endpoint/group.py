"""Endpoints of one locality and priority, together with what they were made from."""
from __future__ import annotations

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from google.protobuf import wrappers_pb2

from pilot.model.endpoint import Endpoint, Locality

MAX_WEIGHT = 2**32 - 1
Member = tuple[Endpoint, endpoint_components_pb2.LbEndpoint]


class Group(msgspec.Struct):
    """`weight` None: not said. It is filled by one step after the other and never shared."""

    locality: Locality
    members: list[Member] = []
    priority: int = 0
    weight: int | None = None

    def weigh(self) -> None:
        """Its weight is that of its members; without members it says none."""
        self.weight = min(sum(m.load_balancing_weight.value for _, m in self.members), MAX_WEIGHT) if self.members else None

    def build(self) -> endpoint_components_pb2.LocalityLbEndpoints:
        """As Envoy's message."""
        return endpoint_components_pb2.LocalityLbEndpoints(
            locality=base_pb2.Locality(region=self.locality.region, zone=self.locality.zone, sub_zone=self.locality.subzone),
            lb_endpoints=[m for _, m in self.members],
            priority=self.priority,
            load_balancing_weight=wrappers_pb2.UInt32Value(value=self.weight) if self.weight is not None else None,
        )


def group_by_locality(members: list[Member]) -> list[Group]:
    """The members by their localities, as these were written, in their order."""
    groups: dict[str, Group] = {}
    for member in members:
        e = member[0]
        group = groups.get(e.locality_text)
        if group is None:
            group = groups[e.locality_text] = Group(e.locality, [])
        group.members.append(member)
    found = [groups[text] for text in sorted(groups)]
    for group in found:
        group.weigh()
    return found


def build_assignment(name: str, groups: list[Group]) -> endpoint_pb2.ClusterLoadAssignment:
    """The assignment of a cluster."""
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=[g.build() for g in groups])
