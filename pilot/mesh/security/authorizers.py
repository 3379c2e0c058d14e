"""External authorizers: the extension providers that AuthorizationPolicies with the action CUSTOM refer to."""

from __future__ import annotations

import re

import msgspec

from pilot.config.mesh.extension_provider import (
    EnvoyExternalAuthorizationGrpcProvider,
    EnvoyExternalAuthorizationHttpProvider,
    ExtensionProvider,
)
from pilot.derive import derived
from pilot.mesh.registry.mesh_services import explain_missing, find_service, list_providers
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

# https://www.envoyproxy.io/docs/envoy/latest/api-v3/type/v3/http_status.proto
_CODES = (
    100,
    *range(200, 209),
    226,
    *range(300, 306),
    307,
    308,
    *range(400, 418),
    *range(421, 425),
    426,
    428,
    429,
    431,
    *range(500, 509),
    510,
    511,
)
_STATUSES = frozenset(("", *map(str, _CODES)))
# The name becomes part of policy names, which determine the authorizer that a proxy uses.
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Authorizer(msgspec.Struct, frozen=True):
    """An external authorizer whose service exists. Either `http` or `grpc` is set."""

    hostname: str
    port: int
    http: EnvoyExternalAuthorizationHttpProvider | None = None
    grpc: EnvoyExternalAuthorizationGrpcProvider | None = None


@derived
def authorizer(db: Mesh, name: str) -> Authorizer | str:
    """Return the authorizer with a name, or the reason why it cannot be used."""
    provider = next((p for p in mesh_config(db).extension_providers if p.name == name), None)
    settings = (provider.envoy_ext_authz_http or provider.envoy_ext_authz_grpc) if provider is not None else None
    if provider is None or settings is None:
        names = [p.name for p in mesh_config(db).extension_providers if is_authorizer(p)]
        return f"the mesh config has no external authorizer {name}{list_providers(name, names)}"
    if fault := find_fault(provider):
        return f"extension provider {name}: {fault}"
    ref = find_service(db, settings.service)
    if ref is None:
        return f"extension provider {name}: {explain_missing(db, settings.service)}"
    return Authorizer(ref.hostname, settings.port, provider.envoy_ext_authz_http, provider.envoy_ext_authz_grpc)


def is_authorizer(provider: ExtensionProvider) -> bool:
    """Return whether a provider is an external authorizer."""
    return provider.envoy_ext_authz_http is not None or provider.envoy_ext_authz_grpc is not None


def find_fault(provider: ExtensionProvider) -> str:
    """Return the reason why an authorizer's settings are invalid, or "" if they are valid."""
    http, grpc = provider.envoy_ext_authz_http, provider.envoy_ext_authz_grpc
    settings = http or grpc
    assert settings is not None
    if not _NAME.fullmatch(provider.name):
        return "the name must consist of at most 63 lower-case letters, digits and hyphens"
    if not settings.port:
        return "port: required, the number of a port of the service"
    if not 1 <= settings.port <= 65535:
        return f"port {settings.port} must be between 1 and 65535"
    if settings.status_on_error not in _STATUSES:
        return f"statusOnError {settings.status_on_error!r} is not a valid HTTP status"
    body = settings.include_request_body_in_check
    if body is not None and not body.max_request_bytes:
        return "includeRequestBodyInCheck.maxRequestBytes is required"
    if settings.timeout is not None and settings.timeout <= 0:
        return "timeout must be greater than 0"
    return _find_http_fault(http) if http is not None else ""


def _find_http_fault(http: EnvoyExternalAuthorizationHttpProvider) -> str:
    if http.path_prefix and not http.path_prefix.startswith("/"):
        return f"pathPrefix {http.path_prefix!r} must start with /"
    lists = (
        http.include_headers_in_check,
        http.include_request_headers_in_check,
        http.headers_to_upstream_on_allow,
        http.headers_to_downstream_on_deny,
        http.headers_to_downstream_on_allow,
    )
    return "the header name * is invalid: use a prefix or a suffix" if any("*" in names for names in lists) else ""
