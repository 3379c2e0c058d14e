"""Builds what the filters of external authorization have in common, for requests and for connections."""

from __future__ import annotations

from envoy.config.core.v3 import grpc_service_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2

from pilot.config.mesh.extension_provider import EnvoyExternalAuthorizationGrpcProvider
from pilot.envoy.rbac.rules import authorizer_prefix
from pilot.envoy.well_known_types import build_duration
from pilot.lib.duration import Duration

SHADOW_PREFIX = "istio_ext_authz_"
DEFAULT_TIMEOUT = Duration.of(600)  # the authorizer's own, or that of a DestinationRule, is to end it before
_POLICY_ID = f"{SHADOW_PREFIX}shadow_effective_policy_id"


def build_condition(rbac_filter: str, provider: str) -> metadata_pb2.MetadataMatcher:
    """Returns when an authorizer is asked: where the RBAC filter before has noted that a rule which names it is met."""
    prefix = string_pb2.StringMatcher(prefix=authorizer_prefix(provider))
    return metadata_pb2.MetadataMatcher(
        filter=rbac_filter,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=_POLICY_ID)],
        value=value_pb2.ValueMatcher(string_match=prefix),
    )


def build_grpc_service(
    said: EnvoyExternalAuthorizationGrpcProvider, cluster: str, hostname: str
) -> grpc_service_pb2.GrpcService:
    """Returns the authorizer as a service of gRPC."""
    return grpc_service_pb2.GrpcService(
        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=cluster, authority=hostname),
        timeout=build_duration(said.timeout or DEFAULT_TIMEOUT),
    )
