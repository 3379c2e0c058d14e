"""The filter io.istio.http.peer_metadata. It identifies the peer by exchanged headers or by workload discovery."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.well_known_types import pack_struct

NAME = "istio.metadata_exchange"  # the historical name, to which users' telemetry refers
CONFIG = "io.istio.http.peer_metadata.Config"
_DISCOVERY: list[dict[str, Any]] = [{"istio_headers": {}}, {"workload_discovery": {}}]


DOWNSTREAM_OF_WAYPOINT = hcm_pb2.HttpFilter(
    name="waypoint_downstream_peer_metadata",
    typed_config=pack_struct(
        CONFIG, {"downstream_discovery": [{"workload_discovery": {}}], "shared_with_upstream": True}
    ),
)
"""The filter that identifies the peer that opened a tunnel, for the listener that handles the tunnel's payload."""
UPSTREAM_OF_WAYPOINT = hcm_pb2.HttpFilter(
    name="waypoint_upstream_peer_metadata",
    typed_config=pack_struct(CONFIG, {"upstream_discovery": [{"workload_discovery": {}}]}),
)
"""The filter that identifies the peer to which a waypoint forwards a request."""


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
