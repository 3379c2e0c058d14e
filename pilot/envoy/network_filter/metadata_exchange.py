"""Builds istio.metadata_exchange: it tells over TCP who the peer is, behind the ALPN istio-peer-exchange."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from envoy.config.listener.v3 import listener_components_pb2
from google.protobuf import any_pb2

from pilot.envoy.typed import pack_struct

NAME = "istio.metadata_exchange"
CONFIG = "envoy.tcp.metadataexchange.config.MetadataExchange"


@lru_cache(maxsize=64)
def build_config(labels: tuple[str, ...] = ()) -> any_pb2.Any:
    """Returns the configuration of the filter of listeners, and of the upstream filter of clusters. `labels`: more labels of workloads to
    exchange."""
    fields: dict[str, Any] = {"protocol": "istio-peer-exchange", "enable_discovery": True}
    if labels:
        fields["additional_labels"] = sorted(set(labels))
    return pack_struct(CONFIG, fields)


@lru_cache(maxsize=64)
def build_metadata_exchange(labels: tuple[str, ...] = ()) -> listener_components_pb2.Filter:
    """Returns the filter of an inbound filter chain; outbound it is the clusters' part."""
    return listener_components_pb2.Filter(name=NAME, typed_config=build_config(labels))
