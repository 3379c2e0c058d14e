"""External authorizers: the extension providers of the mesh config that AuthorizationPolicies with the action CUSTOM name."""

from __future__ import annotations

import re

import msgspec

from pilot.config.mesh.extension_provider import (
    EnvoyExternalAuthorizationGrpcProvider,
    EnvoyExternalAuthorizationHttpProvider,
    ExtensionProvider,
)
from pilot.derive import derived
from pilot.mesh.registry.mesh_services import find_service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

# https://www.envoyproxy.io/docs/envoy/latest/api-v3/type/v3/http_status.proto
_KNOWN = (
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
_STATUSES = frozenset(("", *map(str, _KNOWN)))
# The name is part of names of policies, by which a proxy knows which authorizer to ask.
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Authorizer(msgspec.Struct, frozen=True):
    """A provider whose service is known; `http` or `grpc` is there."""

    hostname: str
    port: int
    http: EnvoyExternalAuthorizationHttpProvider | None = None
    grpc: EnvoyExternalAuthorizationGrpcProvider | None = None


@derived
def authorizer(db: Mesh, name: str) -> Authorizer | str:
    """Returns the authorizer of a name, or why there is none."""
    provider = next((p for p in mesh_config(db).extension_providers if p.name == name), None)
    said = (provider.envoy_ext_authz_http or provider.envoy_ext_authz_grpc) if provider is not None else None
    if provider is None or said is None:
        return f"the mesh config has no external authorizer {name}"
    if fault := find_fault(provider):
        return f"extension provider {name}: {fault}"
    ref = find_service(db, said.service)
    if ref is None:
        return f"extension provider {name}: no service, or more than one, is meant by {said.service}"
    return Authorizer(ref.hostname, said.port, provider.envoy_ext_authz_http, provider.envoy_ext_authz_grpc)


def is_authorizer(provider: ExtensionProvider) -> bool:
    """Returns whether a provider is one that policies can name."""
    return provider.envoy_ext_authz_http is not None or provider.envoy_ext_authz_grpc is not None


def find_fault(provider: ExtensionProvider) -> str:
    """Returns what is wrong with the settings of an authorizer, "" where nothing is."""
    http, grpc = provider.envoy_ext_authz_http, provider.envoy_ext_authz_grpc
    said = http or grpc
    assert said is not None
    if not _NAME.fullmatch(provider.name):
        return "its name must be of lower-case letters, digits and -, 63 at most"
    if not 1 <= said.port <= 65535:
        return f"port {said.port} is none"
    if said.status_on_error not in _STATUSES:
        return f"statusOnError {said.status_on_error!r} is no status that a proxy answers with"
    body = said.include_request_body_in_check
    if body is not None and not body.max_request_bytes:
        return "includeRequestBodyInCheck.maxRequestBytes is needed"
    if said.timeout is not None and said.timeout <= 0:
        return "timeout is not above 0"
    return _find_http_fault(http) if http is not None else ""


def _find_http_fault(http: EnvoyExternalAuthorizationHttpProvider) -> str:
    if http.path_prefix and not http.path_prefix.startswith("/"):
        return f"pathPrefix {http.path_prefix!r} does not begin with /"
    lists = (
        http.include_headers_in_check,
        http.include_request_headers_in_check,
        http.headers_to_upstream_on_allow,
        http.headers_to_downstream_on_deny,
        http.headers_to_downstream_on_allow,
    )
    return (
        "a header named * alone means nothing: a prefix or a suffix is needed"
        if any("*" in names for names in lists)
        else ""
    )
