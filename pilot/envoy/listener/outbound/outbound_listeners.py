"""Derives the outbound listeners of sidecars: one for HTTP a port, one for TCP an address, and what becomes of services that share one.

Shared by resolving first: what an egress listener's services ask for (`claim`) is grouped by address (`listener_addresses`), the claims of each
address become a `OutboundListenerKey` of names only, and that is built once for all scopes in which it comes out the same.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from pilot.config.networking.virtual_service import Destination
from pilot.config.protocol import Protocol
from pilot.derive import Gather, derived
from pilot.envoy import names
from pilot.envoy.listener.listener_address import canonical, wildcards
from pilot.envoy.listener.listener_options import listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ListenerParts, assemble
from pilot.envoy.listener.manager_template import http_template, tracing_part
from pilot.envoy.listener.outbound.address_claims import Claim, claims, place_of
from pilot.envoy.listener.outbound.outbound_builder import build_outbound_listener
from pilot.envoy.listener.outbound.outbound_chains import http_chain, tcp_chains
from pilot.envoy.listener.outbound.outbound_draft import ListenerDraft, OutboundListenerKey
from pilot.envoy.names import outbound_cluster
from pilot.envoy.resource import Resource
from pilot.mesh.model.facets import PARTS_KEPT, ListeningFacet, OutboundListenersFacet, SpanTagsFacet, TracingFacet
from pilot.mesh.scope.sidecar_scope import egress_listeners, outbound_traffic_policy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import egress_services


class ListenerAddressKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Names an address and what asks for it, in order."""

    bind: str
    port: int
    claims: tuple[Claim, ...]

    @property
    def speaks_http(self) -> bool:
        """Returns whether there may be HTTP at the address."""
        return any(c.port.protocol.is_http or c.port.protocol is Protocol.UNSUPPORTED for c in self.claims)

    @property
    def of_pod(self) -> bool:
        """Returns whether it is the address of a pod, for headless services alone."""
        return all(c.of_pod for c in self.claims)


# -- what of a proxy matters -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=PARTS_KEPT)
def addressing(facet: OutboundListenersFacet) -> OutboundListenersFacet:
    """Returns the facet with nothing but what decides which listeners there are and where they lead, so that proxies with other policies, logs
    or metrics share that."""
    of = facet.listening
    return replace(
        facet,
        listening=ListeningFacet(
            ipv4=of.ipv4,
            ipv6=of.ipv6,
            interception=of.interception,
            idle_timeout=of.idle_timeout,
            http_proxy_port=of.http_proxy_port,
            unprivileged=of.unprivileged,
            reserved_ports=of.reserved_ports,
        ),
    )


@lru_cache(maxsize=PARTS_KEPT)
def without_spans(facet: OutboundListenersFacet) -> OutboundListenersFacet:
    """Returns the facet without its spans, which only listeners with HTTP have."""
    of = facet.listening
    return replace(
        facet, listening=replace(of, telemetry=replace(of.telemetry, spans=None), tracing=TracingFacet(default=False))
    )


# -- who asks for which address ----------------------------------------------------------------------------------------------


@derived
def listener_addresses(db: Mesh, facet: OutboundListenersFacet) -> tuple[ListenerAddressKey, ...]:
    """Returns the addresses of a scope's listeners. An egress listener without a port leaves alone those of the listeners before it."""
    settings, mesh = db.settings, listener_defaults(db)
    refused = frozenset((mesh.outbound_port, mesh.inbound_port))
    found: dict[tuple[str, int], list[Claim]] = {}
    locked: frozenset[tuple[str, int]] = frozenset()
    with_http: set[tuple[str, int]] = set()
    for index, listener in enumerate(egress_listeners(db, facet.scope)):
        place = place_of(
            listener, facet, refused, settings.registry.dual_stack, settings.listeners.headless_filter_chains
        )
        if listener.port is None:
            locked = frozenset(found)
        for item in egress_services(db, facet.scope, index):
            for claim in claims(db, item, index, place, listener.port):
                key = canonical(claim.binds[0]), claim.port.number
                if key in locked:
                    continue
                if claim.port.protocol is Protocol.HTTP_PROXY:  # nothing but the proxy, as the last service has it
                    found[key] = []
                    with_http.add(key)
                elif claim.port.protocol.is_http:  # all HTTP of a port is one chain, by routes
                    if key in with_http:
                        continue
                    with_http.add(key)
                found.setdefault(key, []).append(claim)
    return tuple(
        ListenerAddressKey(asking[0].binds[0], port, _apart(asking, found)) for (_, port), asking in found.items()
    )


def _apart(asking: list[Claim], taken: Container[tuple[str, int]]) -> tuple[Claim, ...]:
    """Returns the claims without further addresses that another listener has as its first: Envoy refuses an address twice."""
    return tuple(
        c._replace(binds=tuple(b for i, b in enumerate(c.binds) if not i or (canonical(b), c.port.number) not in taken))
        if len(c.binds) > 1
        else c
        for c in asking
    )


@derived
def _tcp_addresses(db: Mesh, facet: OutboundListenersFacet) -> tuple[ListenerAddressKey, ...]:
    return tuple(s for s in listener_addresses(db, addressing(facet)) if not s.speaks_http)


@derived
def _http_addresses(db: Mesh, facet: OutboundListenersFacet) -> tuple[ListenerAddressKey, ...]:
    return tuple(s for s in listener_addresses(db, addressing(facet)) if s.speaks_http)


# -- one listener ------------------------------------------------------------------------------------------------------------


@derived
def listener_spec(db: Mesh, at: ListenerAddressKey, facet: OutboundListenersFacet) -> OutboundListenerKey | None:
    """Returns what the listener at an address is made by, after the claims of all services have been heard."""
    draft = ListenerDraft()
    everywhere = wildcards(facet.listening.ipv4, facet.listening.ipv6)[0]
    for claim in at.claims:
        _hear(db, draft, claim, facet, everywhere)
    if draft.port is None:
        return None
    return OutboundListenerKey(
        draft.binds, draft.port.number, draft.to_port, tuple(draft.chains.values()), unmatched_cluster(db, facet)
    )


def _hear(db: Mesh, draft: ListenerDraft, claim: Claim, facet: OutboundListenersFacet, everywhere: str) -> None:
    """Adds a claim to a listener. HTTP and TCP at one address are told apart by inspection; an unknown protocol is both."""
    protocol, before = claim.port.protocol, draft.protocol
    if protocol is Protocol.HTTP_PROXY:
        draft.start(claim.port, claim.binds, claim.to_port, protocol, [http_chain(db, claim, facet, detected=False)])
        return
    if (protocol.is_http and before is not None and not before.is_tcp) or not draft.accepts(protocol):
        return
    detected = not protocol.is_http or claim.binds[0] == everywhere
    if protocol.is_http:
        chains = [http_chain(db, claim, facet, detected)]
    else:
        chains = tcp_chains(db, claim, facet)
        if protocol is Protocol.UNSUPPORTED and (before is None or before.is_http or before.is_tcp):
            chains.append(http_chain(db, claim, facet, detected=True))
    if before is None or (protocol is Protocol.UNSUPPORTED and before.is_http):
        kept = Protocol.UNSUPPORTED if protocol.is_http and detected else protocol
        draft.start(claim.port, claim.binds, claim.to_port, kept, chains)
        return
    draft.merge(chains)
    if not (before.is_tcp and protocol.is_tcp):
        draft.protocol = Protocol.UNSUPPORTED


@derived
def unmatched_cluster(db: Mesh, facet: OutboundListenersFacet) -> str:
    """Returns where connections go that no listener or chain is for."""
    policy = outbound_traffic_policy(db, facet.scope)
    if policy.mode not in ("ALLOW_ANY", "ALLOW_ANY_DYNAMIC_DNS"):
        return names.BLACK_HOLE_CLUSTER
    return egress_proxy_cluster(policy.egress_proxy) if policy.egress_proxy is not None else names.PASSTHROUGH_CLUSTER


def egress_proxy_cluster(to: Destination) -> str:
    """Returns the cluster of a Sidecar's egress proxy."""
    return outbound_cluster(to.port.number if to.port is not None else 0, to.subset, to.host)


def _build(db: Mesh, spec: OutboundListenerKey, listening: ListeningFacet) -> ListenerParts:
    templates = {
        c.http.kind: http_template(db, c.http.kind, listening, spec.port) for c in spec.chains if c.http is not None
    }
    return build_outbound_listener(spec, listener_options(db, listening), templates)


@derived
def listener_parts(db: Mesh, spec: OutboundListenerKey, listening: ListeningFacet) -> ListenerParts:
    """Returns a listener with HTTP, of all scopes in which it is made by the same."""
    return _build(db, spec, listening)


@derived
def tcp_resource(db: Mesh, spec: OutboundListenerKey, listening: ListeningFacet) -> Resource:
    """Returns a listener without HTTP, which all workloads share."""
    return assemble(_build(db, spec, listening), b"")


@derived
def _tcp_listener(db: Mesh, at: ListenerAddressKey, facet: OutboundListenersFacet) -> Resource | None:
    spec = listener_spec(db, at, addressing(facet))
    return tcp_resource(db, spec, facet.listening) if spec is not None else None


@derived
def _http_listener(
    db: Mesh, at: ListenerAddressKey, facet: OutboundListenersFacet, tags: SpanTagsFacet
) -> Resource | None:
    spec = listener_spec(db, at, addressing(facet))
    if spec is None:
        return None
    return assemble(listener_parts(db, spec, facet.listening), tracing_part(db, facet.listening, tags, facet.scope))


# -- the groups --------------------------------------------------------------------------------------------------------------

tcp_listeners: Gather[ListenerAddressKey, [OutboundListenersFacet], Resource] = Gather(
    "tcp_listeners", _tcp_addresses, _tcp_listener
)


@derived
def _addresses_of_workload(db: Mesh, facet: OutboundListenersFacet, _: SpanTagsFacet) -> tuple[ListenerAddressKey, ...]:
    return _http_addresses(db, facet)


http_listeners: Gather[ListenerAddressKey, [OutboundListenersFacet, SpanTagsFacet], Resource]
http_listeners = Gather("http_listeners", _addresses_of_workload, _http_listener)


@derived
def _pod_addresses(db: Mesh, facet: OutboundListenersFacet) -> frozenset[str]:
    return frozenset(s.bind for s in listener_addresses(db, facet) if s.of_pod)


def serves_headless(db: Mesh, facet: OutboundListenersFacet, address: str) -> bool:
    """Returns whether there is a listener at the address of a pod itself: its own proxy must not have it. No node of its own."""
    return address in _pod_addresses(db, addressing(facet))


@derived
def tcp_listeners_of_others(
    db: Mesh, facet: OutboundListenersFacet, address: str
) -> Mapping[ListenerAddressKey, Resource]:
    """Returns the listeners without those at the proxy's own address: traffic to itself does not go through an outbound listener."""
    return {s: r for s, r in tcp_listeners(db, facet).items() if s.bind != address or not s.of_pod}


@derived
def http_listeners_of_others(
    db: Mesh, facet: OutboundListenersFacet, tags: SpanTagsFacet, address: str
) -> Mapping[ListenerAddressKey, Resource]:
    """Returns the listeners with HTTP in the same way."""
    return {s: r for s, r in http_listeners(db, facet, tags).items() if s.bind != address or not s.of_pod}


@derived
def _routes_at(db: Mesh, at: ListenerAddressKey, facet: OutboundListenersFacet) -> tuple[str, ...] | None:
    spec = listener_spec(db, at, addressing(facet))
    return tuple(dict.fromkeys(c.http.routes for c in spec.chains if c.http is not None)) if spec is not None else None


_routes_by_address: Gather[ListenerAddressKey, [OutboundListenersFacet], tuple[str, ...]] = Gather(
    "routes_by_address", _http_addresses, _routes_at
)


@derived
def route_names(db: Mesh, facet: OutboundListenersFacet) -> tuple[str, ...]:
    """Returns the routes that the listeners of a scope's services ask for over RDS."""
    return tuple(dict.fromkeys(name for found in _routes_by_address(db, facet).values() for name in found))
