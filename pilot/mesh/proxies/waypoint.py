"""The facets of a waypoint proxy, and the services that it serves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from pilot.config.group_kind import NETWORKING
from pilot.config.kinds.istio import TELEMETRY
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.ambient.attachments import services_of_waypoint
from pilot.mesh.model.facets import (
    Labels,
    ListeningFacet,
    OutboundFacet,
    PolicyFacet,
    PolicySubjectKey,
    PolicyTargetKey,
    ScopeFacet,
    SpanTagsFacet,
)
from pilot.mesh.model.service import Registry, Resolution, Service, ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.proxies.classify import listening_facet, outbound_facet, span_tags_facet
from pilot.mesh.registry.services import service
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.security.policies import (
    GATEWAY_NAME,
    at_service,
    in_scope,
    policies_of,
    terminating_subject,
    waypoint_subject,
)
from pilot.mesh.tables.clusters import preferred_cluster
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy
from pilot.mesh.telemetry.telemetry import telemetry_facet

INCLUDE_CLIENT_IDENTITY = "ambient.istio.io/xfcc-include-client-identity"


class WaypointFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The properties of a waypoint that its listeners may depend on.

    - `listening`: its listener settings, without the policies that apply to only one service.
    - `subject`: determines which policies apply to a service.
    - `terminating`: the policies that apply to the waypoint as a workload, if the settings enable them.
    - `network`: the network that the proxy announces to gateways in other networks.
    """

    waypoint: ObjectKey
    scope: ScopeFacet
    listening: ListeningFacet
    subject: PolicySubjectKey
    tags: SpanTagsFacet
    families: AddressFamiliesFacet
    labels: Labels = frozenset()
    terminating: PolicyFacet = PolicyFacet()
    network: str = ""
    double_hbone: bool = False


class ServingKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a waypoint that the filter chains for a service depend on."""

    waypoint: ObjectKey
    scope: ScopeFacet
    listening: ListeningFacet
    subject: PolicySubjectKey
    families: AddressFamiliesFacet
    labels: Labels


def serving_key(facet: WaypointFacet) -> ServingKey:
    """Return the properties that the filter chains for all services depend on."""
    return ServingKey(facet.waypoint, facet.scope, facet.listening, facet.subject, facet.families, facet.labels)


@derived
def waypoint_of(db: Mesh, node_id: str) -> ObjectKey:
    """Return the key of the Gateway that a waypoint proxy's label names. The Gateway may not exist."""
    return ObjectKey(find_proxy(db, node_id).namespace, proxy_labels(db, node_id).get(GATEWAY_NAME, ""))


@derived
def waypoint_facet(db: Mesh, node_id: str, waypoint: ObjectKey) -> WaypointFacet:
    """Return the facet of a waypoint's listeners."""
    outbound, listens, subject = (
        outbound_facet(db, node_id),
        listening_facet(db, node_id),
        waypoint_subject(db, node_id),
    )
    layered = db.settings.ambient.layered_policies
    annotations = find_proxy(db, node_id).metadata.get("ANNOTATIONS") or {}
    policies = policies_of(db, subject)
    return WaypointFacet(
        waypoint=waypoint,
        scope=outbound.scope,
        listening=replace(
            listens,
            side="waypoint",
            tunnelled=True,
            forwards_client=str(annotations.get(INCLUDE_CLIENT_IDENTITY, "")).lower() == "true",
            policies=in_scope(policies, "waypoint"),
            telemetry=telemetry_facet(db, policies.of(TELEMETRY.id.name), "SERVER"),
        ),
        subject=subject,
        tags=replace(span_tags_facet(db, node_id), peers=True),
        families=_families(db, node_id, outbound, listens),
        labels=outbound.labels,
        terminating=in_scope(policies_of(db, terminating_subject(db, node_id)), "inbound")
        if layered
        else PolicyFacet(),
        network=find_proxy(db, node_id).text("NETWORK"),
        double_hbone=outbound.double_hbone,
    )


def _families(db: Mesh, node_id: str, outbound: OutboundFacet, listens: ListeningFacet) -> AddressFamiliesFacet:
    """Return the families of the service addresses that clients send to a waypoint, including allocated addresses."""
    dual = listens.ipv4 and listens.ipv6
    auto = db.settings.registry.ip_autoallocate
    return AddressFamiliesFacet(
        outbound.location.ipv4, outbound.location.ipv6, dual, auto, preferred_cluster(db, find_proxy(db, node_id))
    )


# -- services of a waypoint --------------------------------------------------------------------------------------------


@derived
def served_services(db: Mesh, waypoint: ObjectKey) -> tuple[ServiceRef, ...]:
    """Return the services that a waypoint serves, oldest first. There is one for each host name.

    Services with the resolution DYNAMIC_DNS are served only if their location is MESH_EXTERNAL.
    """
    served: dict[str, ServiceRef] = {}
    for ref in services_of_waypoint(db, waypoint):
        candidate = service(db, ref)
        if candidate is not None and (candidate.resolution is not Resolution.DYNAMIC_DNS or candidate.mesh_external):
            served.setdefault(ref.hostname, ref)
    return tuple(served.values())


@derived
def served_by_host(db: Mesh, waypoint: ObjectKey) -> Mapping[str, ServiceRef]:
    """Return the services that a waypoint serves, keyed by host name."""
    return {ref.hostname: ref for ref in served_services(db, waypoint)}


@derived
def is_served(db: Mesh, waypoint: ObjectKey, ref: ServiceRef) -> bool:
    """Return whether a waypoint serves a service."""
    return served_by_host(db, waypoint).get(ref.hostname) == ref


def service_target(target: Service) -> PolicyTargetKey:
    """Return the object that policies for a service target."""
    if target.registry is Registry.KUBERNETES:
        return PolicyTargetKey(target.namespace, "", "Service", target.source.name)
    return PolicyTargetKey(target.namespace, NETWORKING, "ServiceEntry", target.source.name)


@derived
def listening_for(db: Mesh, by: ServingKey, target: PolicyTargetKey) -> ListeningFacet:
    """Return the listener settings of a waypoint for the traffic to one service."""
    policies = policies_of(db, at_service(by.subject, target))
    return replace(
        by.listening,
        policies=in_scope(policies, "waypoint"),
        telemetry=telemetry_facet(db, policies.of(TELEMETRY.id.name), "SERVER"),
    )
