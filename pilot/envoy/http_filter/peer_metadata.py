"""The filter io.istio.http.peer_metadata. It identifies the peer by exchanged headers or by workload discovery."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.well_known_types import pack_struct

NAME = "istio.metadata_exchange"  # the historical name, to which users' telemetry refers
CONFIG = "io.istio.http.peer_metadata.Config"
_DISCOVERY: list[dict[str, Any]] = [{"istio_headers": {}}, {"workload_discovery": {}}]


@lru_cache(maxsize=2)
def build_tunnel_peer_metadata(baggage: bool) -> hcm_pb2.HttpFilter:
    """Return the filter that identifies the peer that opened a tunnel, for the listener that handles the payload.

    With `baggage`, the peer may describe itself in the header `baggage`, and the response has this header.
    """
    discovery: list[dict[str, Any]] = [{"workload_discovery": {}}]
    fields: dict[str, Any] = {"downstream_discovery": discovery, "shared_with_upstream": True}
    if baggage:
        discovery.append({"baggage": {}})
        fields["downstream_propagation"] = [{"baggage": {}}]
    return hcm_pb2.HttpFilter(name="waypoint_downstream_peer_metadata", typed_config=pack_struct(CONFIG, fields))


@lru_cache(maxsize=2)
def build_upstream_peer_metadata(baggage: bool) -> hcm_pb2.HttpFilter:
    """Return the filter that identifies the peer to which a waypoint forwards a request.

    With `baggage`, the listener that opens the tunnel may have stored the peer's description in the filter state.
    """
    discovery: list[dict[str, Any]] = [{"workload_discovery": {}}]
    if baggage:
        discovery.append({"upstream_filter_state": {"peer_metadata_key": "upstream_peer"}})
    config = pack_struct(CONFIG, {"upstream_discovery": discovery})
    return hcm_pb2.HttpFilter(name="waypoint_upstream_peer_metadata", typed_config=config)


def _build(fields: dict[str, Any], labels: tuple[str, ...]) -> hcm_pb2.HttpFilter:
    if labels:
        fields["additional_labels"] = sorted(set(labels))
    return hcm_pb2.HttpFilter(name=NAME, typed_config=pack_struct(CONFIG, fields))


@lru_cache(maxsize=64)
def build_inbound_peer_metadata(labels: tuple[str, ...] = ()) -> hcm_pb2.HttpFilter:
    """Return the filter for the server side. `labels` are additional workload labels to exchange."""
    return _build({"downstream_discovery": _DISCOVERY, "downstream_propagation": [{"istio_headers": {}}]}, labels)


@lru_cache(maxsize=64)
def build_outbound_peer_metadata(labels: tuple[str, ...] = (), mesh_only: bool = False) -> hcm_pb2.HttpFilter:
    """Return the filter for the client side. With `mesh_only`, it sends no headers to services outside the mesh."""
    headers = {"skip_external_clusters": True} if mesh_only else {}
    return _build({"upstream_discovery": _DISCOVERY, "upstream_propagation": [{"istio_headers": headers}]}, labels)
