"""The outbound listeners of sidecars: one per port for HTTP, and one per address for TCP.

Services may share a listener. The claims of an egress listener's services (`claims`) are grouped by address
(`listener_addresses`). The claims to an address are merged into an `OutboundListenerKey`, which only contains names.
Each distinct key is built once for all scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from pilot.config.networking.virtual_service import Destination
from pilot.config.protocol import Protocol
from pilot.derive import Gather, Steps, derived, derived_in_steps
from pilot.envoy import names
from pilot.envoy.listener.listener_address import canonical, wildcards
from pilot.envoy.listener.listener_options import listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ListenerParts, assemble
from pilot.envoy.listener.manager_template import manager_template_at, tracing_fields
from pilot.envoy.listener.outbound.address_claims import AddressClaim, binding_of, claims
from pilot.envoy.listener.outbound.outbound_builder import build_outbound_listener
from pilot.envoy.listener.outbound.outbound_chains import http_chain, tcp_chains
from pilot.envoy.listener.outbound.outbound_draft import ListenerDraft, OutboundChainKey, OutboundListenerKey
from pilot.envoy.names import outbound_cluster
from pilot.envoy.resource import Resource
from pilot.mesh.model.facets import (
    FACET_CACHE_SIZE,
    ListeningFacet,
    OutboundListenersFacet,
    SpanTagsFacet,
    TracingFacet,
)
from pilot.mesh.scope.sidecar_scope import egress_listeners, outbound_traffic_policy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import egress_services

MANY_CLAIMS = 20
"""Number of claims to an address from which their chains are memoised.

Otherwise, a change of one service would compute the chains of all services at the address again.
"""


class ClaimKey(msgspec.Struct, frozen=True, cache_hash=True):
    """One of many claims to an address."""

    claim: AddressClaim


class ListenerAddressKey(msgspec.Struct, frozen=True, cache_hash=True):
    """An address of a listener, and the claims to it, in order."""

    bind: str
    port: int
    claims: tuple[AddressClaim, ...]

    @property
    def speaks_http(self) -> bool:
        """Return whether the listener may receive HTTP."""
        return any(c.port.protocol.is_http or c.port.protocol is Protocol.UNSUPPORTED for c in self.claims)

    @property
    def of_pod(self) -> bool:
        """Return whether this is the address of a pod, which only headless services claim."""
        return all(c.of_pod for c in self.claims)


# -- parts of the facet ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=FACET_CACHE_SIZE)
def addressing_facet(facet: OutboundListenersFacet) -> OutboundListenersFacet:
    """Return the part of the facet that determines the addresses and destinations of listeners.

    Proxies with different policies, access logs or metrics share this part.
    """
    listening = facet.listening
    return replace(
        facet,
        listening=ListeningFacet(
            ipv4=listening.ipv4,
            ipv6=listening.ipv6,
            interception=listening.interception,
            idle_timeout=listening.idle_timeout,
            http_proxy_port=listening.http_proxy_port,
            unprivileged=listening.unprivileged,
            reserved_ports=listening.reserved_ports,
        ),
    )


@lru_cache(maxsize=FACET_CACHE_SIZE)
def without_spans(facet: OutboundListenersFacet) -> OutboundListenersFacet:
    """Return the facet without tracing, which only affects listeners that speak HTTP."""
    listening = facet.listening
    return replace(
        facet,
        listening=replace(
            listening, telemetry=replace(listening.telemetry, spans=None), tracing=TracingFacet(default=False)
        ),
    )


# -- addresses ---------------------------------------------------------------------------------------------------------


@derived_in_steps
def listener_addresses(db: Mesh, facet: OutboundListenersFacet) -> Steps[tuple[ListenerAddressKey, ...]]:
    """Return the addresses of all listeners in a scope, with the claims to them.

    An egress listener without a port does not claim addresses that earlier egress listeners already claim.
    """
    settings, mesh = db.settings, listener_defaults(db)
    refused = frozenset((mesh.outbound_port, mesh.inbound_port))
    claims_by_address: dict[tuple[str, int], list[AddressClaim]] = {}
    locked: frozenset[tuple[str, int]] = frozenset()
    with_http: set[tuple[str, int]] = set()
    for index, listener in enumerate(egress_listeners(db, facet.scope)):
        binding = binding_of(
            listener, facet, refused, settings.registry.dual_stack, settings.listeners.headless_filter_chains
        )
        if listener.port is None:
            locked = frozenset(claims_by_address)
        for import_key in egress_services(db, facet.scope, index):
            yield claims.step(import_key, index, binding, listener.port)
            for claim in claims(db, import_key, index, binding, listener.port):
                key = canonical(claim.binds[0]), claim.port.number
                if key in locked:
                    continue
                if claim.port.protocol is Protocol.HTTP_PROXY:  # replaces all other claims; the last service wins
                    claims_by_address[key] = []
                    with_http.add(key)
                elif claim.port.protocol.is_http:  # a single chain serves all HTTP on a port
                    if key in with_http:
                        continue
                    with_http.add(key)
                claims_by_address.setdefault(key, []).append(claim)
    addresses: list[ListenerAddressKey] = []
    for (_, port), claims_at in claims_by_address.items():
        yield None
        addresses.append(
            ListenerAddressKey(claims_at[0].binds[0], port, _without_duplicates(claims_at, claims_by_address))
        )
    return tuple(addresses)


def _without_duplicates(claims: list[AddressClaim], primary: Container[tuple[str, int]]) -> tuple[AddressClaim, ...]:
    """Return the claims, without additional addresses that are the main address of another listener.

    Envoy rejects duplicate addresses.
    """
    return tuple(
        c._replace(
            binds=tuple(b for i, b in enumerate(c.binds) if not i or (canonical(b), c.port.number) not in primary)
        )
        if len(c.binds) > 1
        else c
        for c in claims
    )


@derived
def _tcp_addresses(db: Mesh, facet: OutboundListenersFacet) -> tuple[ListenerAddressKey, ...]:
    return tuple(address for address in listener_addresses(db, addressing_facet(facet)) if not address.speaks_http)


@derived
def _http_addresses(db: Mesh, facet: OutboundListenersFacet) -> tuple[ListenerAddressKey, ...]:
    return tuple(address for address in listener_addresses(db, addressing_facet(facet)) if address.speaks_http)


# -- one listener ------------------------------------------------------------------------------------------------------


@derived_in_steps
def outbound_listener_key(
    db: Mesh, address: ListenerAddressKey, facet: OutboundListenersFacet
) -> Generator[None, None, OutboundListenerKey | None]:
    """Return the key of the listener at an address, merged from all claims. Return None if it has no chains."""
    draft = ListenerDraft()
    wildcard = wildcards(facet.listening.ipv4, facet.listening.ipv6)[0]
    find_chains = _memoised_chains if len(address.claims) >= MANY_CLAIMS else tcp_chains
    for claim in address.claims:
        _merge_claim(db, draft, claim, facet, wildcard, find_chains)
        yield
    if draft.port is None:
        return None
    return OutboundListenerKey(
        draft.binds, draft.port.number, draft.binds_port, tuple(draft.chains.values()), unmatched_cluster(db, facet)
    )


def _memoised_chains(db: Mesh, claim: AddressClaim, facet: OutboundListenersFacet) -> Sequence[OutboundChainKey]:
    return _chains_of_claim(db, ClaimKey(claim), facet)


@derived
def _chains_of_claim(db: Mesh, key: ClaimKey, facet: OutboundListenersFacet) -> tuple[OutboundChainKey, ...]:
    return tuple(tcp_chains(db, key.claim, facet))


def _merge_claim(
    db: Mesh,
    draft: ListenerDraft,
    claim: AddressClaim,
    facet: OutboundListenersFacet,
    wildcard: str,
    find_chains: Callable[[Mesh, AddressClaim, OutboundListenersFacet], Sequence[OutboundChainKey]],
) -> None:
    """Merge a claim into a draft.

    Inspection distinguishes HTTP and TCP at the same address. A port with an unknown protocol has chains for both.
    """
    protocol, draft_protocol = claim.port.protocol, draft.protocol
    if protocol is Protocol.HTTP_PROXY:
        draft.reset(claim.port, claim.binds, claim.binds_port, protocol, [http_chain(db, claim, facet, detected=False)])
        return
    if (protocol.is_http and draft_protocol is not None and not draft_protocol.is_tcp) or not draft.can_share(protocol):
        return
    detected = not protocol.is_http or claim.binds[0] == wildcard
    if protocol.is_http:
        chains = [http_chain(db, claim, facet, detected)]
    else:
        chains = [*find_chains(db, claim, facet)]
        if protocol is Protocol.UNSUPPORTED and (
            draft_protocol is None or draft_protocol.is_http or draft_protocol.is_tcp
        ):
            chains.append(http_chain(db, claim, facet, detected=True))
    if draft_protocol is None or (protocol is Protocol.UNSUPPORTED and draft_protocol.is_http):
        chain_protocol = Protocol.UNSUPPORTED if protocol.is_http and detected else protocol
        draft.reset(claim.port, claim.binds, claim.binds_port, chain_protocol, chains)
        return
    draft.merge(chains)
    if not (draft_protocol.is_tcp and protocol.is_tcp):
        draft.protocol = Protocol.UNSUPPORTED


@derived
def unmatched_cluster(db: Mesh, facet: OutboundListenersFacet) -> str:
    """Return the name of the cluster for connections that match no listener or chain."""
    policy = outbound_traffic_policy(db, facet.scope)
    if policy.mode not in ("ALLOW_ANY", "ALLOW_ANY_DYNAMIC_DNS"):
        return names.BLACK_HOLE_CLUSTER
    return egress_proxy_cluster(policy.egress_proxy) if policy.egress_proxy is not None else names.PASSTHROUGH_CLUSTER


def egress_proxy_cluster(destination: Destination) -> str:
    """Return the name of the cluster for a Sidecar's egress proxy."""
    return outbound_cluster(
        destination.port.number if destination.port is not None else 0, destination.subset, destination.host
    )


def _build_parts(db: Mesh, key: OutboundListenerKey, listening: ListeningFacet) -> Generator[None, None, ListenerParts]:
    templates = {
        c.http.kind: manager_template_at(db, c.http.kind, listening, key.port) for c in key.chains if c.http is not None
    }
    return (yield from build_outbound_listener(key, listener_options(db, listening), templates))


@derived_in_steps
def listener_parts(
    db: Mesh, key: OutboundListenerKey, listening: ListeningFacet
) -> Generator[None, None, ListenerParts]:
    """Return a listener that speaks HTTP. All scopes with an equal key share it."""
    return (yield from _build_parts(db, key, listening))


@derived_in_steps
def tcp_resource(db: Mesh, key: OutboundListenerKey, listening: ListeningFacet) -> Generator[None, None, Resource]:
    """Return a listener that does not speak HTTP. All workloads share it."""
    return assemble((yield from _build_parts(db, key, listening)), b"")


@derived
def _tcp_listener(db: Mesh, address: ListenerAddressKey, facet: OutboundListenersFacet) -> Resource | None:
    key = outbound_listener_key(db, address, addressing_facet(facet))
    return tcp_resource(db, key, facet.listening) if key is not None else None


@derived
def _http_listener(
    db: Mesh, address: ListenerAddressKey, facet: OutboundListenersFacet, tags: SpanTagsFacet
) -> Resource | None:
    key = outbound_listener_key(db, address, addressing_facet(facet))
    if key is None:
        return None
    return assemble(listener_parts(db, key, facet.listening), tracing_fields(db, facet.listening, tags, facet.scope))


# -- groups ------------------------------------------------------------------------------------------------------------

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
    return frozenset(address.bind for address in listener_addresses(db, facet) if address.of_pod)


def has_own_pod_listener(db: Mesh, facet: OutboundListenersFacet, address: str) -> bool:
    """Return whether there is a listener at the pod's own address. Not memoised.

    The pod's own proxy must not have this listener.
    """
    return address in _pod_addresses(db, addressing_facet(facet))


@derived
def tcp_listeners_except_own(
    db: Mesh, facet: OutboundListenersFacet, address: str
) -> Mapping[ListenerAddressKey, Resource]:
    """Return the TCP listeners, except those at the proxy's own address.

    Traffic from a pod to itself must not use an outbound listener.
    """
    return {
        key: resource for key, resource in tcp_listeners(db, facet).items() if key.bind != address or not key.of_pod
    }


@derived
def http_listeners_except_own(
    db: Mesh, facet: OutboundListenersFacet, tags: SpanTagsFacet, address: str
) -> Mapping[ListenerAddressKey, Resource]:
    """Return the listeners that speak HTTP, except those at the proxy's own address."""
    return {
        key: resource
        for key, resource in http_listeners(db, facet, tags).items()
        if key.bind != address or not key.of_pod
    }


@derived
def _routes_at(db: Mesh, address: ListenerAddressKey, facet: OutboundListenersFacet) -> tuple[str, ...] | None:
    key = outbound_listener_key(db, address, addressing_facet(facet))
    return tuple(dict.fromkeys(c.http.routes for c in key.chains if c.http is not None)) if key is not None else None


_routes_by_address: Gather[ListenerAddressKey, [OutboundListenersFacet], tuple[str, ...]] = Gather(
    "routes_by_address", _http_addresses, _routes_at
)


@derived
def route_names(db: Mesh, facet: OutboundListenersFacet) -> tuple[str, ...]:
    """Return the names of the route configurations that the listeners in a scope request over RDS."""
    return tuple(dict.fromkeys(name for names in _routes_by_address(db, facet).values() for name in names))
