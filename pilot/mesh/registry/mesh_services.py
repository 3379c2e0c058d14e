"""Services that the mesh config names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.derive import derived
from pilot.lib.suggestion import closest
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
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


_MAX_CANDIDATES = 3
"""Maximum number of services that a text suggests."""


class ProviderPort(NamedTuple):
    """The service port that an extension provider names."""

    hostname: str
    port: int


def find_service(db: Mesh, name: str) -> ServiceRef | None:
    """Return the service that the mesh config names as `host` or `namespace/host`, or None if there is none.

    A `host` without a namespace must be declared in only one namespace.
    """
    namespace, slash, host = name.rpartition("/")
    candidates = refs_by_hostname(db, host)
    if slash:
        return next((ref for ref in candidates if ref.namespace == namespace), None)
    return candidates[0] if len(candidates) == 1 else None


def explain_missing(db: Mesh, name: str) -> str:
    """Return why the mesh config names no service with `host` or `namespace/host`, and what to write."""
    _, slash, host = name.rpartition("/")
    if candidates := refs_by_hostname(db, host):
        listed = _choices(f"{ref.namespace}/{ref.hostname}" for ref in candidates)
        reason = f"matches no service in that namespace; write {listed}"
        return f"{name} {reason if slash else f'is a host of several namespaces; write {listed}'}"
    label, _, rest = host.partition(".")
    keys = SERVICE.keys(db, "named", label)
    namespace = rest.partition(".")[0]
    named = [key for key in keys if key.namespace == namespace] or keys
    domain = db.settings.registry.domain
    hosts = dict.fromkeys(kubernetes_hostname(key.name, key.namespace, domain) for key in sorted(named))
    listed = _choices(hosts) if hosts else "the whole HOST or NAMESPACE/HOST"
    return f"{name} matches no service; write {listed}"


def _choices(texts: Iterable[str]) -> str:
    listed = list(texts)
    return " or ".join(listed[:_MAX_CANDIDATES]) + (" or another" if len(listed) > _MAX_CANDIDATES else "")


@derived
def secret_provider(db: Mesh) -> ProviderPort | None:
    """Return the hostname and port of the mesh's SDS server. The first extension provider for SDS names it.

    Return None if there is no such provider, or if its service does not exist.
    """
    provider = next((p.sds for p in mesh_config(db).extension_providers if p.sds is not None), None)
    ref = find_service(db, provider.service) if provider is not None else None
    return ProviderPort(ref.hostname, provider.port) if ref is not None and provider is not None else None


@derived
def provider_services(db: Mesh) -> frozenset[str]:
    """Return the services that extension providers name, as written: `host` or `namespace/host`."""
    return frozenset(filter(None, map(provider_service, mesh_config(db).extension_providers)))


def provider_service(provider: ExtensionProvider) -> str:
    """Return the service that an extension provider names, as written, or "" if it names none."""
    kinds = (getattr(provider, kind) for kind in _WITH_SERVICE)
    return next((kind.service for kind in kinds if kind is not None and kind.service), "")


def named_port(provider: ExtensionProvider) -> int:
    """Return the service port that an extension provider names, or 0 if it names none."""
    kinds = (getattr(provider, kind) for kind in _WITH_SERVICE)
    return next((kind.port for kind in kinds if kind is not None and kind.service), 0)


def provider_variables(provider: ExtensionProvider) -> tuple[str, ...]:
    """Return the environment variables of the control plane that contain header values for a tracing provider."""
    zipkin, telemetry = provider.zipkin, provider.opentelemetry
    headers = [*(zipkin.headers if zipkin is not None else ())]
    if telemetry is not None:
        headers += telemetry.http.headers if telemetry.http is not None else ()
        headers += telemetry.grpc.initial_metadata if telemetry.grpc is not None else ()
    return tuple(dict.fromkeys(header.env_name for header in headers if header.env_name))


_MAX_PROVIDERS, _MAX_COMPARED = 5, 50
"""Maximum numbers of providers that a message lists, and whose names are compared with one that does not exist."""


def list_providers(name: str, names: Sequence[str]) -> str:
    """Return what a message says after the name of a missing provider: a similar name, and the first that exist."""
    meant = f"did you mean {similar}? " if (similar := closest(name, names[:_MAX_COMPARED])) else ""
    listed = f"{', '.join(sorted(names)[:_MAX_PROVIDERS])}{', …' if len(names) > _MAX_PROVIDERS else ''}"
    return f" ({meant}its extensionProviders: {listed or 'none of this kind'})"
