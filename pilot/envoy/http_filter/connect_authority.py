"""Filters that record a tunnel's destination and client for the internal listener that handles the tunnel's payload."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.filter_state import (
    AUTHORITY,
    DESTINATION,
    LOCAL_PRINCIPAL,
    ONCE,
    PEER_PRINCIPAL,
    REQUEST_SOURCE,
    SOURCE,
    build_value,
    hashable,
)
from pilot.envoy.well_known_types import pack

NAME = "connect_authority"
SOURCE_HEADER = "x-istio-source"
_AUTHORITY = "%REQ(:AUTHORITY)%"


@lru_cache(maxsize=2)
def build_connect_authority(istio: bool) -> hcm_pb2.HttpFilter:
    """Return the filter that records the destination of a tunnel, its source address, and the identities of both ends.

    `istio` is set for Istio's build of Envoy.
    """
    kind = hashable(istio)
    values = [
        build_value(DESTINATION, _AUTHORITY, shared=ONCE),
        build_value(AUTHORITY, _AUTHORITY, kind, ONCE),
        build_value(SOURCE, "%DOWNSTREAM_REMOTE_ADDRESS%", shared=ONCE),
        build_value(PEER_PRINCIPAL, "%DOWNSTREAM_PEER_URI_SAN%", kind, ONCE),
        build_value(LOCAL_PRINCIPAL, "%DOWNSTREAM_LOCAL_URI_SAN%", kind, ONCE),
    ]
    return hcm_pb2.HttpFilter(name=NAME, typed_config=pack(set_filter_state_pb2.Config(on_request_headers=values)))


@lru_cache(maxsize=2)
def build_request_source(istio: bool) -> hcm_pb2.HttpFilter:
    """Return the filter that records which type of proxy opened a tunnel.

    If the proxy is a waypoint, it has already applied the service's policies.
    """
    value = build_value(REQUEST_SOURCE, f"%REQ({SOURCE_HEADER})%", hashable(istio), ONCE)
    return hcm_pb2.HttpFilter(
        name="request_source", typed_config=pack(set_filter_state_pb2.Config(on_request_headers=[value]))
    )


_IDENTITY = base_pb2.HeaderValueOption(
    header=base_pb2.HeaderValue(
        key="x-forwarded-client-cert",
        value=f"By=%FILTER_STATE({LOCAL_PRINCIPAL}:PLAIN)%;URI=%FILTER_STATE({PEER_PRINCIPAL}:PLAIN)%",
    ),
    append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
)
CLIENT_IDENTITY = hcm_pb2.HttpFilter(
    name="istio.waypoint.xfcc_client_identity",
    typed_config=pack(
        header_mutation_pb2.HeaderMutation(
            mutations=header_mutation_pb2.Mutations(
                request_mutations=[mutation_rules_pb2.HeaderMutation(append=_IDENTITY)]
            )
        )
    ),
)
"""The filter that reports the client's identity to the workload behind a waypoint.

It overwrites the X-Forwarded-Client-Cert header if the request already has one.
"""
