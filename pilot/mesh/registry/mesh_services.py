"""Services that the mesh config names, for the proxies to call."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.derive import derived
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import refs_by_hostname
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

_WITH_SERVICE = (
    "envoy_ext_authz_http",
    "envoy_ext_authz_grpc",
    "zipkin",
    "datadog",
    "skywalking",
    "opentelemetry",
    "envoy_http_als",
    "envoy_tcp_als",
    "envoy_otel_als",
    "sds",
)


class ProviderPort(NamedTuple):
    """A port of a service that an extension provider names."""

    hostname: str
    port: int


def find_service(db: Mesh, name: str) -> ServiceRef | None:
    """Returns the service that the mesh config means by `host`, or by `namespace/host`; a host alone must be of one namespace only."""
    namespace, slash, host = name.rpartition("/")
    found = refs_by_hostname(db, host)
    if slash:
        return next((ref for ref in found if ref.namespace == namespace), None)
    return found[0] if len(found) == 1 else None


@derived
def secret_provider(db: Mesh) -> ProviderPort | None:
    """Returns the SDS server of the mesh, the first of its extension providers that is one; None also where that names no known service."""
    provider = next((p.sds for p in mesh_config(db).extension_providers if p.sds is not None), None)
    ref = find_service(db, provider.service) if provider is not None else None
    return ProviderPort(ref.hostname, provider.port) if ref is not None and provider is not None else None


@derived
def provider_services(db: Mesh) -> frozenset[str]:
    """Returns the services that extension providers name, as written: `host` or `namespace/host`."""
    return frozenset(filter(None, map(named_service, mesh_config(db).extension_providers)))


def named_service(provider: ExtensionProvider) -> str:
    """Returns the service that an extension provider names, as written; "" for none."""
    said = (getattr(provider, kind) for kind in _WITH_SERVICE)
    return next((kind.service for kind in said if kind is not None and kind.service), "")


def named_port(provider: ExtensionProvider) -> int:
    """Returns the port of the service that an extension provider names; 0 for none."""
    said = (getattr(provider, kind) for kind in _WITH_SERVICE)
    return next((kind.port for kind in said if kind is not None and kind.service), 0)


def named_variables(provider: ExtensionProvider) -> tuple[str, ...]:
    """Returns the variables of the control plane's environment that a tracer takes headers from."""
    zipkin, telemetry = provider.zipkin, provider.opentelemetry
    headers = [*(zipkin.headers if zipkin is not None else ())]
    if telemetry is not None:
        headers += telemetry.http.headers if telemetry.http is not None else ()
        headers += telemetry.grpc.initial_metadata if telemetry.grpc is not None else ()
    return tuple(dict.fromkeys(h.env_name for h in headers if h.env_name))
