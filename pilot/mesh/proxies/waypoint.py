"""A waypoint's proxy, taken apart into the facets that its resources are computed from."""

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

TELLS_CLIENT = "ambient.istio.io/xfcc-include-client-identity"


class WaypointFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All that the listeners of a waypoint may depend on.

    `listening` is without what only counts for one service; `subject` decides what that is. `terminating` are the policies of the waypoint as
    a workload, where the settings want them to count too. `network`: of the proxy, as it tells gateways of other networks.
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
    """What the chains of one service depend on of a waypoint."""

    waypoint: ObjectKey
    scope: ScopeFacet
    listening: ListeningFacet
    subject: PolicySubjectKey
    families: AddressFamiliesFacet
    labels: Labels


def serving_key(facet: WaypointFacet) -> ServingKey:
    """Returns what the chains of every service depend on of a waypoint."""
    return ServingKey(facet.waypoint, facet.scope, facet.listening, facet.subject, facet.families, facet.labels)


@derived
def waypoint_of(db: Mesh, node_id: str) -> ObjectKey:
    """Returns the Gateway that a waypoint's proxy stands for, by its label; nothing is attached to one that there is not."""
    return ObjectKey(find_proxy(db, node_id).namespace, proxy_labels(db, node_id).get(GATEWAY_NAME, ""))


@derived
def waypoint_facet(db: Mesh, node_id: str, waypoint: ObjectKey) -> WaypointFacet:
    """Returns what the listeners of a waypoint depend on."""
    outbound, listens, subject = (
        outbound_facet(db, node_id),
        listening_facet(db, node_id),
        waypoint_subject(db, node_id),
    )
    layered = db.settings.ambient.layered_policies
    annotations = find_proxy(db, node_id).metadata.get("ANNOTATIONS") or {}
    at_all = policies_of(db, subject)
    return WaypointFacet(
        waypoint=waypoint,
        scope=outbound.scope,
        listening=replace(
            listens,
            side="waypoint",
            tunnelled=True,
            forwards_client=str(annotations.get(TELLS_CLIENT, "")).lower() == "true",
            policies=in_scope(at_all, "waypoint"),
            telemetry=telemetry_facet(db, at_all.of(TELEMETRY.id.name), "SERVER"),
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
    """Returns which addresses of services a waypoint is asked for; allocated ones too, for its clients know these."""
    dual = listens.ipv4 and listens.ipv6
    auto = db.settings.registry.ip_autoallocate
    return AddressFamiliesFacet(
        outbound.reach.ipv4, outbound.reach.ipv6, dual, auto, preferred_cluster(db, find_proxy(db, node_id))
    )


# -- the services behind it --------------------------------------------------------------------------------------------------


@derived
def served_services(db: Mesh, waypoint: ObjectKey) -> tuple[ServiceRef, ...]:
    """Returns the services behind a waypoint, oldest first; of one host name in several namespaces, the first. Wildcards are resolved only outside of
    the mesh."""
    found: dict[str, ServiceRef] = {}
    for ref in services_of_waypoint(db, waypoint):
        known = service(db, ref)
        if known is not None and (known.resolution is not Resolution.DYNAMIC_DNS or known.mesh_external):
            found.setdefault(ref.hostname, ref)
    return tuple(found.values())


@derived
def served_by_host(db: Mesh, waypoint: ObjectKey) -> Mapping[str, ServiceRef]:
    """Returns the services behind a waypoint by host name."""
    return {ref.hostname: ref for ref in served_services(db, waypoint)}


@derived
def is_served(db: Mesh, waypoint: ObjectKey, ref: ServiceRef) -> bool:
    """Returns whether a service is behind a waypoint."""
    return served_by_host(db, waypoint).get(ref.hostname) == ref


def service_target(found: Service) -> PolicyTargetKey:
    """Returns the object that policies for a service name."""
    if found.registry is Registry.KUBERNETES:
        return PolicyTargetKey(found.namespace, "", "Service", found.source.name)
    return PolicyTargetKey(found.namespace, NETWORKING, "ServiceEntry", found.source.name)


@derived
def listening_for(db: Mesh, by: ServingKey, target: PolicyTargetKey) -> ListeningFacet:
    """Returns how a waypoint treats what is for one service."""
    policies = policies_of(db, at_service(by.subject, target))
    return replace(
        by.listening,
        policies=in_scope(policies, "waypoint"),
        telemetry=telemetry_facet(db, policies.of(TELEMETRY.id.name), "SERVER"),
    )
