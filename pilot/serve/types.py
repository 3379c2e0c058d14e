"""What the protocol says of single types."""
from __future__ import annotations

from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.lib.type_urls import BY_SHORT_NAME
from pilot.translate.resource import CLUSTER, ENDPOINT, LISTENER, ROUTE, Resource

HEALTH = "type.googleapis.com/istio.v1.HealthInformation"
SECRET, EXTENSION = BY_SHORT_NAME["sds"], BY_SHORT_NAME["ecds"]
# Envoy warms clusters before the endpoints that they wait for, and listeners before their routes
# https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations
ORDER = (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, BY_SHORT_NAME["wds"], "type.googleapis.com/istio.workload.Workload", BY_SHORT_NAME["wads"])
_RANK = {type_url: rank for rank, type_url in enumerate(ORDER)}
# A proxy gets the resources that it names; of every other type all there is for it
NAMED = frozenset({ENDPOINT, ROUTE, SECRET, EXTENSION})
# Envoy drops an extension that it no longer refers to, and must not lose one that it does: https://github.com/envoyproxy/envoy/issues/32823
NEVER_REMOVED = frozenset({ENDPOINT, EXTENSION})


def rank(type_url: str) -> int:
    """The place of a type in a push."""
    return _RANK.get(type_url, len(ORDER))


def placeholder(type_url: str, name: str) -> Resource | None:
    """What is sent for a name that there is no resource for: no endpoints, so that a cluster does not stay warming."""
    if type_url != ENDPOINT:
        return None
    return Resource.of(ENDPOINT, endpoint_pb2.ClusterLoadAssignment(cluster_name=name), name=name)
