"""Which resources a sidecar gets."""
from __future__ import annotations

from pilot.derive import derived
from pilot.model.inputs import Mesh
from pilot.model.views.classify import inbound_facet, outbound_facet
from pilot.translate.cluster.groups import sidecar_cluster_groups
from pilot.translate.endpoint.assignment import endpoints_of
from pilot.translate.profile.plan import Group, Plan
from pilot.translate.resource import CLUSTER, ENDPOINT


@derived
def sidecar_plan(db: Mesh, node_id: str) -> Plan:
    """The groups of one sidecar."""
    outbound, inbound = outbound_facet(db, node_id), inbound_facet(db, node_id)
    return Plan({CLUSTER: sidecar_cluster_groups(db, outbound, inbound), ENDPOINT: (Group(endpoints_of, (outbound,)),)})
