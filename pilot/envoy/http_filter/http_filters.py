"""Selects and orders the HTTP filters of an HTTP connection manager."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.filter_phase import Phase, in_order
from pilot.envoy.http_filter.endpoint_picker import ENDPOINT_PICKER
from pilot.envoy.http_filter.peer_metadata import (
    build_inbound_peer_metadata,
    build_outbound_peer_metadata,
    build_upstream_peer_metadata,
)
from pilot.envoy.http_filter.prebuilt_http_filters import (
    ALPN,
    CORS,
    FAULT,
    GRPC_STATS,
    GRPC_WEB,
    STATEFUL_SESSION,
    build_router,
)
from pilot.mesh.model.facets import FeaturesFacet


class FilterOptions(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The settings that determine the HTTP filters of an HTTP connection manager.

    `metadata_exchange`, `baggage`, `alpn` and `sessions` come from the control plane's settings. `labels` are further
    workload labels to exchange. If `mesh_only` is set, metadata headers are only exchanged with peers in the mesh.
    `exchanges` is False if the peers cannot exchange metadata, for example through a tunnel. `picks_endpoints` is set
    if routes target inference pools.
    """

    side: Literal["inbound", "outbound", "gateway", "waypoint"]
    features: FeaturesFacet = FeaturesFacet()
    metadata_exchange: bool = True
    baggage: bool = False
    labels: tuple[str, ...] = ()
    mesh_only: bool = False
    alpn: bool = True
    sessions: bool = False
    grpc_web: bool = False
    start_child_span: bool = False
    suppress_envoy_headers: bool = False
    exchanges: bool = True
    picks_endpoints: bool = False


def build_http_filters(
    options: FilterOptions, added: Iterable[tuple[Phase, hcm_pb2.HttpFilter]] = ()
) -> list[hcm_pb2.HttpFilter]:
    """Return the filters of an HTTP connection manager, in order.

    `added` contains the filters of policies and the filters that resolve hosts.
    """
    return in_order((*_common_filters(options), *added), at_waypoint=options.side == "waypoint")


def _common_filters(options: FilterOptions) -> Iterator[tuple[Phase, hcm_pb2.HttpFilter]]:
    """Yield the filters that every HTTP connection manager has, if the proxy supports them.

    The peer metadata filter comes first, so that telemetry also identifies the peer of a request that a policy rejects.
    """
    outgoing, waypoint = options.side in ("outbound", "gateway"), options.side == "waypoint"
    if waypoint and options.features.peer_metadata:
        yield Phase.UPSTREAM_METADATA, build_upstream_peer_metadata(options.baggage)
    elif not waypoint and options.exchanges and options.metadata_exchange and options.features.peer_metadata:
        metadata = (
            build_outbound_peer_metadata(options.labels, options.mesh_only)
            if outgoing
            else build_inbound_peer_metadata(options.labels)
        )
        yield Phase.PEER_METADATA, metadata
    if options.picks_endpoints:
        yield Phase.ENDPOINT_PICKER, ENDPOINT_PICKER
    if options.grpc_web:
        yield Phase.CODEC, GRPC_WEB
    yield Phase.CODEC, GRPC_STATS
    if outgoing and options.alpn and options.features.alpn:
        yield Phase.ALPN, ALPN
    yield Phase.FAULT, FAULT
    yield Phase.CORS, CORS
    if outgoing and options.sessions:
        yield Phase.SESSION, STATEFUL_SESSION
    yield Phase.TERMINAL, build_router(options.start_child_span, options.suppress_envoy_headers)
