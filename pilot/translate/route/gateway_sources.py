"""The routes that a VirtualService gives to the servers of a Gateway, serialized once for all virtual hosts that have them."""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pilot.derive import derived
from pilot.model.config.destination_rule import ConsistentHashLB
from pilot.model.config.virtual_service import Destination, HTTPRetry, VirtualService
from pilot.model.consistent_hash import hash_of_destination
from pilot.model.facets import Labels, Scope
from pilot.model.inputs import Mesh
from pilot.model.service import Registry, ServiceRef
from pilot.model.views.destination_rules import merged_rule, rule_ref
from pilot.model.views.mesh import mesh_config
from pilot.model.views.services import is_visible, listing, refs_by_hostname, service
from pilot.model.views.virtual_services import virtual_service
from pilot.translate.route.context import RouteContext
from pilot.translate.route.destination import DestinationKey, Target, destination_key
from pilot.translate.route.gateway_hosts import Source
from pilot.translate.route.match import is_catch_all
from pilot.translate.route.route import build_routes
from pilot.translate.route.session import Session, session_of


class RouteBytes(NamedTuple):
    """A serialized route; `catch_all`: no request gets past it."""

    route: bytes
    catch_all: bool


class Offer(msgspec.Struct, frozen=True, cache_hash=True):
    """What the routes of a source depend on beside it. `alt_svc`: answers tell of HTTP/3; the others are as in `Routing`."""

    scope: Scope
    labels: Labels
    sources: Labels
    forwarded_host: bool
    alt_svc: bool


@derived
def source_routes(db: Mesh, source: Source, offer: Offer) -> tuple[RouteBytes, ...]:
    """The routes of a source, in order."""
    found = virtual_service(db, source.virtual_service)
    if found is None:
        return ()
    owner, viewer = source.virtual_service.namespace, offer.scope.namespace
    hosts = {d.host for d in _leads(found.spec)}
    refs = {host: ref for host in hosts if (ref := destination_service(db, host, owner, viewer)) is not None}
    context = RouteContext(
        port=source.port,
        gateways=frozenset((f"{source.gateway.namespace}/{source.gateway.name}",)),
        namespace=viewer,
        labels=offer.sources,
        targets={host: target for host, ref in refs.items() if (target := target_of(db, ref)) is not None},
        hashes=_hashes(db, found.spec, offer),
        retries=default_retries(db),
        forwarded_host=offer.forwarded_host,
        tls=source.tls,
        alt_svc=offer.alt_svc,
    )
    return tuple(RouteBytes(r.SerializeToString(deterministic=True), is_catch_all(r.match)) for r in build_routes(found, context))


def _leads(spec: VirtualService) -> Iterator[Destination]:
    for rule in spec.http:
        for to in (*(r.destination for r in rule.route), rule.mirror, *(m.destination for m in rule.mirrors)):
            if to is not None:
                yield to


def _hashes(db: Mesh, spec: VirtualService, offer: Offer) -> dict[DestinationKey, ConsistentHashLB]:
    out: dict[DestinationKey, ConsistentHashLB] = {}
    for rule in spec.http:
        for to in (r.destination for r in rule.route):
            if to is None or (key := destination_key(to)) in out:
                continue
            ref = service_in_sight(db, to.host, offer.scope.namespace)
            sources = rule_ref(db, offer.scope.namespace, ref, offer.labels) if ref is not None else ()
            found = merged_rule(db, sources) if sources else None
            if found is not None and (settings := hash_of_destination(found.spec, key.subset, key.port)) is not None:
                out[key] = settings
    return out


@derived
def destination_service(db: Mesh, host: str, owner: str, viewer: str) -> ServiceRef | None:
    """The service that a destination of a VirtualService in namespace `owner` means to a router in `viewer`.

    The owner's own where the router sees it, else the one that the router has of that name.
    """
    own = ServiceRef(host, owner)
    return own if is_visible(db, own, viewer) else service_in_sight(db, host, viewer)


@derived
def service_in_sight(db: Mesh, host: str, viewer: str) -> ServiceRef | None:
    """Of the services of a host name the one that a namespace means: its own, else Kubernetes' own, else the oldest.

    Those that are exported to it by name count as older than those that everybody sees.
    """
    seen = [ref for ref in refs_by_hostname(db, host) if is_visible(db, ref, viewer)]
    if len(seen) <= 1:
        return seen[0] if seen else None
    seen.sort(key=lambda ref: _is_public(db, ref))
    own = next((ref for ref in seen if ref.namespace == viewer), None)
    return own or next((ref for ref in seen if _is_kubernetes(db, ref)), seen[0])


def _is_public(db: Mesh, ref: ServiceRef) -> bool:
    listed = listing(db, ref)
    return listed is not None and "*" in listed.exported_to


def _is_kubernetes(db: Mesh, ref: ServiceRef) -> bool:
    found = service(db, ref)
    return found is not None and found.registry is Registry.KUBERNETES


@derived
def target_of(db: Mesh, ref: ServiceRef) -> Target | None:
    """A service, as far as routes to it depend on it."""
    found = service(db, ref)
    if found is None:
        return None
    session = session_of(found) if db.settings.persistent_sessions else None
    return Target(tuple(p.number for p in found.ports), found.external_name, session)


@derived
def default_retries(db: Mesh) -> HTTPRetry | None:
    """The mesh's default retry policy."""
    return mesh_config(db).default_http_retry_policy


@derived
def session_of_host(db: Mesh, host: str, source: Source, offer: Offer) -> Session | None:
    """Sticky sessions of the host of a virtual host, where its VirtualService leads to the service of that very name."""
    if not db.settings.persistent_sessions:
        return None
    found = virtual_service(db, source.virtual_service)
    if found is None or all(d.host != host for d in _leads(found.spec)):
        return None
    ref = destination_service(db, host, source.virtual_service.namespace, offer.scope.namespace)
    target = target_of(db, ref) if ref is not None else None
    return target.session if target is not None else None
