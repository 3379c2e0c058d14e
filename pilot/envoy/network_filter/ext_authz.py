"""Builds the filter that asks an external authorizer about connections."""

from __future__ import annotations

from envoy.config.core.v3 import config_source_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.ext_authz.v3 import ext_authz_pb2

from pilot.config.mesh.extension_provider import EnvoyExternalAuthorizationGrpcProvider
from pilot.envoy.ext_authz import build_condition, build_grpc_service
from pilot.envoy.names import outbound_cluster
from pilot.envoy.network_filter import rbac
from pilot.envoy.typed import pack

NAME = "envoy.filters.network.ext_authz"


def build_network_ext_authz(
    provider: str, said: EnvoyExternalAuthorizationGrpcProvider, port: int, hostname: str
) -> listener_components_pb2.Filter:
    """Returns the filter; an authorizer is asked about connections over gRPC only."""
    config = ext_authz_pb2.ExtAuthz(
        stat_prefix=rbac.STAT_PREFIX,
        failure_mode_allow=said.fail_open,
        transport_api_version=config_source_pb2.ApiVersion.V3,
        grpc_service=build_grpc_service(said, outbound_cluster(port, "", hostname), hostname),
        filter_enabled_metadata=build_condition(rbac.NAME, provider),
    )
    return listener_components_pb2.Filter(name=NAME, typed_config=pack(config))
