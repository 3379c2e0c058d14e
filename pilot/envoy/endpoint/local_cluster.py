"""Derives the endpoints of the cluster that a proxy's bootstrap calls its own: by them Envoy knows how much of its workload is in its
zone.

https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/load_balancing/zone_aware
"""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.endpoint.assignment_builder import AssignmentOptions, build_cluster_load_assignment
from pilot.envoy.endpoint.client_location import ClientLocationKey
from pilot.envoy.endpoint.endpoint_inputs import lb_endpoint_options, uses_mtls
from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy
from pilot.envoy.resource import Resource
from pilot.lib import labels as label
from pilot.lib.xds_types import ENDPOINT
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.facets import SiblingsKey
from pilot.mesh.registry.clusterset import bounds
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.networks import network_gateways
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh


@derived
def local_cluster(db: Mesh, of: SiblingsKey) -> Mapping[str, Resource]:
    """Returns the one resource, without endpoints where the proxy serves nothing. No DestinationRule counts."""
    found = service(db, of.ref) if of.ref is not None else None
    if of.ref is None or found is None:
        return {
            names.LOCAL_CLUSTER: Resource.of(
                ENDPOINT, endpoint_pb2.ClusterLoadAssignment(cluster_name=names.LOCAL_CLUSTER), names.LOCAL_CLUSTER
            )
        }
    settings = db.settings
    policy = EndpointPolicy(
        unhealthy=settings.clusters.send_unhealthy_endpoints
        or settings.clusters.always_send_unhealthy_endpoints
        or bool(found.traffic_distribution),
        sticky=bool(found.session_label),
        node_local=found.node_local,
        bounds=bounds(db, found),
    )
    client = ClientLocationKey(cluster_id=of.reach.cluster_id, network=of.reach.network, node=of.reach.node)
    rules = AssignmentOptions(policy, client, network_gateways(db), lb_endpoint_options(db, found))
    like = [e for e in endpoints(db, of.ref, of.port) if is_sibling(e, of)]
    built = build_cluster_load_assignment(names.LOCAL_CLUSTER, like, rules, lambda e: uses_mtls(db, e, policy))
    return {names.LOCAL_CLUSTER: Resource.of(ENDPOINT, built, names.LOCAL_CLUSTER)}


def is_sibling(e: Endpoint, of: SiblingsKey) -> bool:
    """Returns whether an endpoint is of the same workload, the same generation of it, and the same region."""
    labels = dict(e.labels)
    templates = labels.get(label.POD_TEMPLATE_HASH, ""), labels.get(label.ROLLOUT_TEMPLATE_HASH, "")
    return e.workload == of.workload and templates == of.templates and e.locality.region == of.reach.locality.region
