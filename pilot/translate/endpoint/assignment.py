"""EDS: the ClusterLoadAssignments of a client's clusters, each built once for all clients that see the same.

What a client's scope says is resolved first, into the objects of its DestinationRule and a vantage; only these are the arguments
of what is built.
"""
from __future__ import annotations

from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.derive import Gather, derived
from pilot.model.facets import Outbound
from pilot.model.inputs import Mesh
from pilot.model.service import ServiceRef
from pilot.model.views.destination_rules import Sources, rule_ref
from pilot.model.views.endpoints import endpoints
from pilot.model.views.networks import all_network_gateways, network_gateways
from pilot.model.views.services import service
from pilot.translate import names
from pilot.translate.cluster.keys import ClusterKey, is_eds, placeless_keys
from pilot.translate.endpoint.build import Rules, build_cluster_load_assignment
from pilot.translate.endpoint.inputs import endpoint_policy, presentation, takes_mtls, vantage
from pilot.translate.endpoint.vantage import Vantage
from pilot.translate.resource import ENDPOINT, Resource


@derived
def _load_assignment(db: Mesh, ref: ServiceRef, port: int, subset: str, sources: Sources, seen_from: Vantage, sni: bool) -> Resource:
    """The endpoints of an EDS cluster. `sni`: of that which a gateway finds by SNI."""
    name = names.dns_srv(port, subset, ref.hostname) if sni else names.outbound_cluster(port, subset, ref.hostname)
    return Resource.of(ENDPOINT, _build(db, name, ref, port, subset, sources, seen_from, sni, inline=False), name)


def inline_assignment(db: Mesh, key: ClusterKey, outbound: Outbound, sni: bool = False) -> endpoint_pb2.ClusterLoadAssignment | None:
    """The endpoints of a cluster that holds them itself (STATIC, STRICT_DNS, LOGICAL_DNS); None where it has none.

    The message is shared: copy it, do not change it. No node of its own.
    """
    sources = rule_ref(db, outbound.scope.namespace, key.ref, outbound.labels)
    policy = endpoint_policy(db, key.ref, key.port, key.subset, sources, True)
    return _inline_load_assignment(db, key.ref, key.port, key.subset, sources, vantage(db, policy, outbound), sni)


@derived
def _inline_load_assignment(
    db: Mesh, ref: ServiceRef, port: int, subset: str, sources: Sources, seen_from: Vantage, sni: bool
) -> endpoint_pb2.ClusterLoadAssignment | None:
    name = names.dns_srv(port, subset, ref.hostname) if sni else names.outbound_cluster(port, subset, ref.hostname)
    built = _build(db, name, ref, port, subset, sources, seen_from, sni, inline=True)
    return built if built.endpoints else None


def _build(
    db: Mesh, name: str, ref: ServiceRef, port: int, subset: str, sources: Sources, seen_from: Vantage, sni: bool, inline: bool
) -> endpoint_pb2.ClusterLoadAssignment:
    found = service(db, ref)
    if found is None:
        return endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    policy = endpoint_policy(db, ref, port, subset, sources, inline)
    gateways = all_network_gateways(db) if inline else network_gateways(db)
    rules = Rules(policy, seen_from, gateways, presentation(db, found), sni, inline)
    return build_cluster_load_assignment(name, endpoints(db, ref, port), rules, lambda e: takes_mtls(db, e, policy))


@derived
def _assignment_for(db: Mesh, key: ClusterKey, outbound: Outbound) -> Resource | None:
    return _resolve(db, key, outbound, sni=False) if is_eds(db, key, outbound) else None


@derived
def _sni_assignment_for(db: Mesh, key: ClusterKey, outbound: Outbound) -> Resource | None:
    found = service(db, key.ref)
    if found is None or found.mesh_external or not is_eds(db, key, outbound):
        return None
    return _resolve(db, key, outbound, sni=True)


def _resolve(db: Mesh, key: ClusterKey, outbound: Outbound, sni: bool) -> Resource:
    sources = rule_ref(db, outbound.scope.namespace, key.ref, outbound.labels)
    policy = endpoint_policy(db, key.ref, key.port, key.subset, sources, False)
    return _load_assignment(db, key.ref, key.port, key.subset, sources, vantage(db, policy, outbound), sni)


endpoints_of: Gather[ClusterKey, [Outbound], Resource] = Gather("endpoints_of", placeless_keys, _assignment_for)
sni_endpoints_of: Gather[ClusterKey, [Outbound], Resource] = Gather("sni_endpoints_of", placeless_keys, _sni_assignment_for)
