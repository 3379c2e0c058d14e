"""Derives the endpoints of the local cluster, from which Envoy learns how many pods of its own workload run in each
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
from pilot.mesh.registry.clusterset import endpoint_visibility
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.networks import network_gateways
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh


@derived
def local_cluster(db: Mesh, key: SiblingsKey) -> Mapping[str, Resource]:
    """Return the endpoints of the local cluster as a single resource. DestinationRules do not apply.

    There are no endpoints if the proxy's workload does not belong to a service.
    """
    row = service(db, key.ref) if key.ref is not None else None
    if key.ref is None or row is None:
        return {
            names.LOCAL_CLUSTER: Resource.of(
                ENDPOINT, endpoint_pb2.ClusterLoadAssignment(cluster_name=names.LOCAL_CLUSTER), names.LOCAL_CLUSTER
            )
        }
    settings = db.settings
    policy = EndpointPolicy(
        send_unhealthy=settings.clusters.send_unhealthy_endpoints
        or settings.clusters.always_send_unhealthy_endpoints
        or bool(row.traffic_distribution),
        send_draining=bool(row.session_label),
        node_local=row.node_local,
        endpoint_visibility=endpoint_visibility(db, row),
    )
    client = ClientLocationKey(cluster_id=key.location.cluster_id, network=key.location.network, node=key.location.node)
    options = AssignmentOptions(policy, client, network_gateways(db), lb_endpoint_options(db, row))
    siblings = [e for e in endpoints(db, key.ref, key.port) if is_sibling(e, key)]
    assignment = build_cluster_load_assignment(
        names.LOCAL_CLUSTER, siblings, options, lambda e: uses_mtls(db, e, policy)
    )
    return {names.LOCAL_CLUSTER: Resource.of(ENDPOINT, assignment, names.LOCAL_CLUSTER)}


def is_sibling(e: Endpoint, key: SiblingsKey) -> bool:
    """Return whether an endpoint has the same workload, pod template and region."""
    labels = dict(e.labels)
    template_hashes = labels.get(label.POD_TEMPLATE_HASH, ""), labels.get(label.ROLLOUT_TEMPLATE_HASH, "")
    return (
        e.workload == key.workload
        and template_hashes == key.templates
        and e.locality.region == key.location.locality.region
    )
