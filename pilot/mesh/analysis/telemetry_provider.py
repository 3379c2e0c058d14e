"""Checks that the providers named by Telemetries and the mesh config exist, and that proxies support their features."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.config.mesh.mesh_config import DefaultProviders
from pilot.config.problem import Problem, Problems, info, warning
from pilot.config.telemetry import Telemetry
from pilot.mesh.model.telemetry_features import (
    CONNECTION_LOG,
    DATADOG,
    FILE_LOG,
    OPEN_TELEMETRY,
    OPEN_TELEMETRY_LOG,
    REQUEST_LOG,
    SKYWALKING,
    STATS,
    ZIPKIN,
)
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import missing_features
from pilot.mesh.telemetry.providers import provider_port, telemetry_provider


class TelemetryPart(NamedTuple):
    """A part of a Telemetry, such as tracing.

    - `entries`: returns the entries in a Telemetry.
    - `defaults`: returns the names of the default providers in the mesh config.
    - `kinds`: maps each kind of provider to the proxy feature that it needs.
    - `lost`: describes the effect if a provider cannot be used.
    """

    entries: Callable[[Telemetry], tuple[Any, ...]]
    defaults: Callable[[DefaultProviders], tuple[str, ...]]
    kinds: Mapping[str, str]
    lost: str


PARTS: Mapping[str, TelemetryPart] = {
    "tracing": TelemetryPart(
        lambda spec: spec.tracing,
        lambda defaults: defaults.tracing,
        {"zipkin": ZIPKIN, "datadog": DATADOG, "skywalking": SKYWALKING, "opentelemetry": OPEN_TELEMETRY},
        "no spans are reported",
    ),
    "metrics": TelemetryPart(
        lambda spec: spec.metrics, lambda defaults: defaults.metrics, {"prometheus": STATS}, "it gets no metrics"
    ),
    "accessLogging": TelemetryPart(
        lambda spec: spec.access_logging,
        lambda defaults: defaults.access_logging,
        {
            "envoy_file_access_log": FILE_LOG,
            "envoy_http_als": REQUEST_LOG,
            "envoy_tcp_als": CONNECTION_LOG,
            "envoy_otel_als": OPEN_TELEMETRY_LOG,
        },
        "no logs are sent to it",
    ),
}
_WITHOUT: Mapping[str, str] = {STATS: "only Envoy's own statistics count requests"}


def check_provider(db: Mesh, name: str, part: TelemetryPart) -> Problems:
    """Yield a problem if a provider cannot be used for a part of a Telemetry."""
    provider = telemetry_provider(db, name)
    if isinstance(provider, str):
        yield warning("provider-not-found", "", f"{provider}, so {part.lost}")
        return
    settings = next((value for kind in part.kinds if (value := getattr(provider, kind)) is not None), None)
    if settings is None:
        yield warning(
            "bad-provider", "", f"extension provider {name} does not support this kind of telemetry, so {part.lost}"
        )
    elif (service := getattr(settings, "service", "")) and provider_port(db, service, settings.port) is None:
        yield warning(
            "service-not-found",
            "",
            f"extension provider {name}: {service} does not match exactly one service with port {settings.port}, so "
            f"{part.lost}",
        )


def needs_of(db: Mesh, names: Iterable[str], part: TelemetryPart) -> list[str]:
    """Return the proxy features that the named providers need."""
    providers = (telemetry_provider(db, name) for name in names)
    used = [provider for provider in providers if isinstance(provider, ExtensionProvider)]
    return [need for kind, need in part.kinds.items() if any(getattr(provider, kind) is not None for provider in used)]


def missing_support(db: Mesh, needs: Iterable[str], namespaces: Collection[str]) -> Iterable[Problem]:
    """Yield information about each needed feature that some proxies in the namespaces lack.

    If `namespaces` is empty, all namespaces are checked.
    """
    for need in dict.fromkeys(needs):
        places = sorted(
            {
                place
                for place, lacks in missing_features(db)
                if need in lacks and (not namespaces or place in namespaces)
            }
        )
        if places:
            message = (
                f"proxies in {', '.join(places)} do not support {need}: {_WITHOUT.get(need, 'it is omitted there')}"
            )
            yield info("left-out", "", message)
