"""Network filters that record facts about a connection for later filters."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.set_filter_state.v3 import set_filter_state_pb2

from pilot.envoy.filter_state import (
    DESTINATION,
    HBONE_TARGET,
    ONCE,
    TRANSITIVE,
    TRANSPORT_DESTINATION,
    build_value,
    hashable,
)
from pilot.envoy.well_known_types import pack


def _build(name: str, *values: object) -> listener_components_pb2.Filter:
    return listener_components_pb2.Filter(
        name=name, typed_config=pack(set_filter_state_pb2.Config(on_new_connection=values))
    )


CONNECT_AUTHORITY = _build(
    "connect_authority", build_value(DESTINATION, f"%FILTER_STATE({DESTINATION}:PLAIN)%", shared=ONCE)
)
"""The filter that passes the destination of a terminated tunnel on to the next tunnel."""


@lru_cache(maxsize=2)
def build_endpoint_metadata(istio: bool) -> listener_components_pb2.Filter:
    """Return the filter that records the destinations of the outer and inner tunnel from an endpoint's metadata.

    `istio` is set for Istio's build of Envoy.
    """
    return _build(
        "propagate_endpoint_metadata",
        build_value(DESTINATION, "%DYNAMIC_METADATA(envoy.filters.listener.original_dst:local)%", shared=TRANSITIVE),
        build_value(
            HBONE_TARGET, "%DYNAMIC_METADATA(istio:double_hbone:hbone_target_address)%", hashable(istio), TRANSITIVE
        ),
    )


@lru_cache(maxsize=4096)
def build_destination(address: str) -> listener_components_pb2.Filter:
    """Return the filter that records the destination of a connection to a service.

    The destination is the target of the tunnel if there is one, and otherwise the service's own address.
    """
    text = f"%CEL('{DESTINATION}' in filter_state ? filter_state['{DESTINATION}']: r'{address}')%"
    return _build("set_dst_address", build_value(TRANSPORT_DESTINATION, text, cel=True))
