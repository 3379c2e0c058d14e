"""The endpoints inside a cluster. They are serialized once, and clusters with equal endpoints share the bytes."""

from __future__ import annotations

from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.envoy.resource import length_delimited

_LOAD_ASSIGNMENT = cluster_pb2.Cluster.LOAD_ASSIGNMENT_FIELD_NUMBER


class InlineEndpoints(NamedTuple):
    """The endpoints inside a cluster.

    `field` is the serialized field `load_assignment` of the cluster, without its name. The cluster's own message
    contains the field with the name alone, and a decoder merges both. `number` is the number of endpoints.
    https://protobuf.dev/programming-guides/encoding/#last-one-wins
    """

    field: bytes
    number: int


def serialize_inline(assignment: endpoint_pb2.ClusterLoadAssignment) -> InlineEndpoints | None:
    """Return the endpoints of an assignment without a name, or None if there are none."""
    if not assignment.endpoints:
        return None
    return InlineEndpoints(
        length_delimited(_LOAD_ASSIGNMENT, assignment.SerializeToString(deterministic=True)),
        sum(len(locality.lb_endpoints) for locality in assignment.endpoints),
    )
