"""Which HTTP filters a connection manager has, in their order."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.model.facets import Features
from pilot.translate.http_filter.alpn import ALPN
from pilot.translate.http_filter.cors import CORS
from pilot.translate.http_filter.fault import FAULT
from pilot.translate.http_filter.grpc_stats import GRPC_STATS
from pilot.translate.http_filter.grpc_web import GRPC_WEB
from pilot.translate.http_filter.peer_metadata import build_inbound_peer_metadata, build_outbound_peer_metadata
from pilot.translate.http_filter.router import build_router
from pilot.translate.http_filter.stateful_session import STATEFUL_SESSION


class FilterOptions(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """What a chain of filters depends on.

    `metadata_exchange`, `alpn`, `sessions`: what the settings allow; `labels`: more labels to exchange; `mesh_only`: metadata
    headers only within the mesh.
    """

    side: Literal["inbound", "outbound", "gateway"]
    features: Features = Features()
    metadata_exchange: bool = True
    labels: tuple[str, ...] = ()
    mesh_only: bool = False
    alpn: bool = True
    sessions: bool = False
    grpc_web: bool = False
    start_child_span: bool = False
    suppress_envoy_headers: bool = False


def build_http_filters(
    options: FilterOptions, authn: Sequence[hcm_pb2.HttpFilter] = (), forward: Sequence[hcm_pb2.HttpFilter] = ()
) -> list[hcm_pb2.HttpFilter]:
    """The filters. Metadata of the peer comes first, so that a request which `authn` turns away is counted with it; `forward` are
    those that resolve hosts, right before the router."""
    filters = []
    if options.metadata_exchange and options.features.peer_metadata:
        filters.append(
            build_inbound_peer_metadata(options.labels)
            if options.side == "inbound"
            else build_outbound_peer_metadata(options.labels, options.mesh_only)
        )
    filters += authn
    if options.grpc_web:
        filters.append(GRPC_WEB)
    filters.append(GRPC_STATS)
    if options.side != "inbound" and options.alpn and options.features.alpn:
        filters.append(ALPN)
    filters += (FAULT, CORS)
    if options.side != "inbound" and options.sessions:
        filters.append(STATEFUL_SESSION)
    filters += forward
    filters.append(build_router(options.start_child_span, options.suppress_envoy_headers))
    return filters
