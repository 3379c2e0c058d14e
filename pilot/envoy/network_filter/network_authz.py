"""Network filters that authorize connections: Envoy's RBAC filter, and the filter that calls an external authorizer."""

from __future__ import annotations

from envoy.config.core.v3 import config_source_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as filter_pb2

from pilot.config.mesh.extension_provider import EnvoyExternalAuthorizationGrpcProvider
from pilot.envoy.names import outbound_cluster
from pilot.envoy.rbac.ext_authz import build_condition, build_grpc_service
from pilot.envoy.rbac.rbac_rules import ActionRules
from pilot.envoy.well_known_types import pack

STAT_PREFIX = "tcp."
_RBAC, _EXT_AUTHZ = "envoy.filters.network.rbac", "envoy.filters.network.ext_authz"


def build_network_rbac(rules: ActionRules) -> listener_components_pb2.Filter:
    """Return the RBAC filter that applies the rules of all policies with the same action."""
    config = filter_pb2.RBAC(
        rules=rules.enforced,
        shadow_rules=rules.shadow,
        shadow_rules_stat_prefix=rules.shadow_prefix,
        stat_prefix=STAT_PREFIX,
    )
    return listener_components_pb2.Filter(name=_RBAC, typed_config=pack(config))


def build_network_denial(rules: rbac_pb2.RBAC) -> listener_components_pb2.Filter:
    """Return the RBAC filter that denies connections that match these rules."""
    return listener_components_pb2.Filter(
        name=_RBAC, typed_config=pack(filter_pb2.RBAC(rules=rules, stat_prefix=STAT_PREFIX))
    )


def build_network_ext_authz(
    provider: str, settings: EnvoyExternalAuthorizationGrpcProvider, port: int, hostname: str
) -> listener_components_pb2.Filter:
    """Return the filter that calls an external authorizer for each connection. Envoy only supports this over gRPC."""
    config = ext_authz_pb2.ExtAuthz(
        stat_prefix=STAT_PREFIX,
        failure_mode_allow=settings.fail_open,
        transport_api_version=config_source_pb2.ApiVersion.V3,
        grpc_service=build_grpc_service(settings, outbound_cluster(port, "", hostname), hostname),
        filter_enabled_metadata=build_condition(_RBAC, provider),
    )
    return listener_components_pb2.Filter(name=_EXT_AUTHZ, typed_config=pack(config))
