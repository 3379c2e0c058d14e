"""The parts that the HTTP and network filters for external authorization share."""

from __future__ import annotations

from envoy.config.core.v3 import grpc_service_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2

from pilot.config.mesh.extension_provider import EnvoyExternalAuthorizationGrpcProvider
from pilot.envoy.rbac.rbac_rules import authorizer_prefix
from pilot.envoy.well_known_types import build_duration
from pilot.lib.duration import Duration

SHADOW_PREFIX = "istio_ext_authz_"
DEFAULT_TIMEOUT = Duration.of(600)  # long, so that timeouts of the authorizer or of a DestinationRule take effect first
_POLICY_ID = f"{SHADOW_PREFIX}shadow_effective_policy_id"


def build_condition(rbac_filter: str, provider: str) -> metadata_pb2.MetadataMatcher:
    """Return the condition for calling an authorizer.

    The condition holds if the preceding RBAC filter matched a rule that names the provider.
    """
    prefix = string_pb2.StringMatcher(prefix=authorizer_prefix(provider))
    return metadata_pb2.MetadataMatcher(
        filter=rbac_filter,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=_POLICY_ID)],
        value=value_pb2.ValueMatcher(string_match=prefix),
    )


def build_grpc_service(
    settings: EnvoyExternalAuthorizationGrpcProvider, cluster: str, hostname: str
) -> grpc_service_pb2.GrpcService:
    """Return the gRPC service of an authorizer."""
    return grpc_service_pb2.GrpcService(
        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=cluster, authority=hostname),
        timeout=build_duration(settings.timeout or DEFAULT_TIMEOUT),
    )
