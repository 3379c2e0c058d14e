"""The endpoints inside a cluster. They are serialized once, and clusters with equal endpoints share the bytes."""

from __future__ import annotations

from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.envoy.resource import varint

_LOAD_ASSIGNMENT = varint(cluster_pb2.Cluster.LOAD_ASSIGNMENT_FIELD_NUMBER << 3 | 2)


class InlineEndpoints(NamedTuple):
    """The endpoints inside a cluster.

    `data` contains the serialized fields of the cluster's ClusterLoadAssignment, without its name. `number` is the
    number of endpoints.
    """

    data: bytes
    number: int


def serialize_endpoints(assignment: endpoint_pb2.ClusterLoadAssignment) -> InlineEndpoints | None:
    """Return the endpoints of an assignment without a name, or None if there are none."""
    if not assignment.endpoints:
        return None
    number = sum(len(locality.lb_endpoints) for locality in assignment.endpoints)
    return InlineEndpoints(assignment.SerializeToString(deterministic=True), number)


def serialize_cluster(cluster: cluster_pb2.Cluster, inline: InlineEndpoints) -> tuple[bytes, bytes]:
    """Return a serialized cluster in two pieces, of which the second one contains its endpoints.

    The assignment of `cluster` has only a name. It is moved to the end of the first piece, with the size of both.
    """
    name = cluster.load_assignment.SerializeToString(deterministic=True)
    cluster.ClearField("load_assignment")
    head = (cluster.SerializeToString(deterministic=True), _LOAD_ASSIGNMENT, varint(len(name) + len(inline.data)), name)
    return b"".join(head), inline.data
