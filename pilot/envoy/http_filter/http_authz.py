"""HTTP filters that authorize requests: Envoy's RBAC filter, and the filter that calls an external authorizer.

https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-ExtensionProvider
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.core.v3 import base_pb2, config_source_pb2, http_uri_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.matcher.v3 import string_pb2

from pilot.config.mesh.extension_provider import (
    EnvoyExternalAuthorizationGrpcProvider,
    EnvoyExternalAuthorizationHttpProvider,
    EnvoyExternalAuthorizationRequestBody,
)
from pilot.envoy.names import outbound_cluster
from pilot.envoy.rbac.ext_authz import DEFAULT_TIMEOUT, build_condition, build_grpc_service
from pilot.envoy.rbac.rbac_rules import ActionRules
from pilot.envoy.well_known_types import build_duration, pack
from pilot.mesh.security.authorizers import Authorizer

_RBAC, _EXT_AUTHZ = "envoy.filters.http.rbac", "envoy.filters.http.ext_authz"


def build_http_rbac(rules: ActionRules) -> hcm_pb2.HttpFilter:
    """Return the RBAC filter that applies the rules of all policies with the same action."""
    config = filter_pb2.RBAC(
        rules=rules.enforced, shadow_rules=rules.shadow, shadow_rules_stat_prefix=rules.shadow_prefix
    )
    return hcm_pb2.HttpFilter(name=_RBAC, typed_config=pack(config))


def build_http_denial(rules: rbac_pb2.RBAC) -> hcm_pb2.HttpFilter:
    """Return the RBAC filter that denies requests that match these rules."""
    return hcm_pb2.HttpFilter(name=_RBAC, typed_config=pack(filter_pb2.RBAC(rules=rules)))


# -- external authorizers ----------------------------------------------------------------------------------------------


def build_http_ext_authz(provider: str, authorizer: Authorizer) -> hcm_pb2.HttpFilter:
    """Return the filter that calls an external authorizer for each request."""
    settings = authorizer.http or authorizer.grpc
    assert settings is not None
    config = ext_authz_pb2.ExtAuthz(
        failure_mode_allow=settings.fail_open,
        transport_api_version=config_source_pb2.ApiVersion.V3,
        filter_enabled_metadata=build_condition(_RBAC, provider),
    )
    if settings.status_on_error:
        config.status_on_error.code = int(settings.status_on_error)
    if settings.include_request_body_in_check is not None:
        config.with_request_body.CopyFrom(_body(settings.include_request_body_in_check))
    cluster = outbound_cluster(authorizer.port, "", authorizer.hostname)
    if isinstance(settings, EnvoyExternalAuthorizationGrpcProvider):
        config.grpc_service.CopyFrom(build_grpc_service(settings, cluster, authorizer.hostname))
    else:
        config.http_service.CopyFrom(_http_service(settings, cluster, authorizer.hostname))
        if names := settings.include_request_headers_in_check or settings.include_headers_in_check:
            config.allowed_headers.CopyFrom(_headers(names))
    return hcm_pb2.HttpFilter(name=_EXT_AUTHZ, typed_config=pack(config))


def _body(settings: EnvoyExternalAuthorizationRequestBody) -> ext_authz_pb2.BufferSettings:
    return ext_authz_pb2.BufferSettings(
        max_request_bytes=settings.max_request_bytes,
        allow_partial_message=settings.allow_partial_message,
        pack_as_bytes=settings.pack_as_bytes,
    )


def _http_service(
    settings: EnvoyExternalAuthorizationHttpProvider, cluster: str, hostname: str
) -> ext_authz_pb2.HttpService:
    timeout = build_duration(settings.timeout or DEFAULT_TIMEOUT)
    service = ext_authz_pb2.HttpService(
        path_prefix=settings.path_prefix,
        server_uri=http_uri_pb2.HttpUri(uri=f"http://{hostname}", cluster=cluster, timeout=timeout),
    )
    if added := settings.include_additional_headers_in_check:
        headers = [base_pb2.HeaderValue(key=name, value=value) for name, value in sorted(added.items())]
        service.authorization_request.headers_to_add.extend(headers)
    response = service.authorization_response
    for field, names in (
        ("allowed_upstream_headers", settings.headers_to_upstream_on_allow),
        ("allowed_client_headers", settings.headers_to_downstream_on_deny),
        ("allowed_client_headers_on_success", settings.headers_to_downstream_on_allow),
    ):
        if names:
            getattr(response, field).CopyFrom(_headers(names))
    return service


def _headers(names: Iterable[str]) -> string_pb2.ListStringMatcher:
    """Return the matcher for header names. A name may start or end with a wildcard."""
    return string_pb2.ListStringMatcher(patterns=[_header(name) for name in names])


def _header(name: str) -> string_pb2.StringMatcher:
    if name.startswith("*"):
        return string_pb2.StringMatcher(suffix=name[1:], ignore_case=True)
    if name.endswith("*"):
        return string_pb2.StringMatcher(prefix=name[:-1], ignore_case=True)
    return string_pb2.StringMatcher(exact=name, ignore_case=True)
