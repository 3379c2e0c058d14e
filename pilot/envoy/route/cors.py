"""Builds the cross-origin policy of one route. https:

istio.io/latest/docs/reference/config/networking/virtual-service/#CorsPolicy
"""

from __future__ import annotations

from envoy.extensions.filters.http.cors.v3 import cors_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import CorsPolicy, StringMatch
from pilot.envoy.route.percent import ALL
from pilot.envoy.route.string_match import build_string_matcher


def build_cors(policy: CorsPolicy) -> cors_pb2.CorsPolicy:
    """Returns the policy. Preflight requests of other origins go on to the service, unless they are to be ignored."""
    origins = policy.allow_origins or tuple(StringMatch(exact=origin) for origin in policy.allow_origin)
    return cors_pb2.CorsPolicy(
        allow_origin_string_match=[m for origin in origins if (m := build_string_matcher(origin)) is not None],
        allow_methods=",".join(policy.allow_methods),
        allow_headers=",".join(policy.allow_headers),
        expose_headers=",".join(policy.expose_headers),
        max_age=str(policy.max_age // 1_000_000_000) if policy.max_age is not None else "",
        allow_credentials=_wrapped(policy.allow_credentials),
        filter_enabled=ALL,
        forward_not_matching_preflights=_wrapped(policy.unmatched_preflights != "IGNORE"),
    )


def _wrapped(value: bool | None) -> wrappers_pb2.BoolValue | None:
    return wrappers_pb2.BoolValue(value=value) if value is not None else None
