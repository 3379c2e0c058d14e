"""The extension providers in the mesh config that receive spans, logs and metrics."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.config.mesh.mesh_config import DefaultProviders
from pilot.config.validation.extension_provider import find_fault
from pilot.derive import derived, hub
from pilot.mesh.registry.mesh_services import ProviderPort, find_service, list_providers
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def default_providers(db: Mesh) -> DefaultProviders:
    """Return the providers for workloads whose Telemetries do not name any."""
    return mesh_config(db).default_providers


class WorkloadNames(NamedTuple):
    """The naming schemes for workloads that tracers use.

    With `by_node`, the name is the cluster in the node. With `by_convention`, it follows OpenTelemetry's conventions.
    """

    by_node: bool = False
    by_convention: bool = False


@hub
def workload_names(db: Mesh) -> WorkloadNames:
    """Return the naming schemes that at least one provider uses. Unused names do not split classes of proxies."""
    providers = mesh_config(db).extension_providers
    conventions = {p.opentelemetry.service_attribute_enrichment for p in providers if p.opentelemetry is not None}
    by_node = "ISTIO_CANONICAL" in conventions or any(p.datadog is not None for p in providers)
    return WorkloadNames(by_node, "OTEL_SEMANTIC_CONVENTIONS" in conventions)


@derived
def telemetry_provider(db: Mesh, name: str) -> ExtensionProvider | str:
    """Return the provider with a name, or the reason why it cannot be used. Case is ignored."""
    providers = mesh_config(db).extension_providers
    provider = next((p for p in providers if p.name.lower() == name.lower()), None)
    if provider is None:
        return f"the mesh config has no extension provider {name}{list_providers(name, [p.name for p in providers])}"
    return f"extension provider {name}: {fault}" if (fault := find_fault(provider)) else provider


@derived
def provider_port(db: Mesh, name: str, port: int) -> ProviderPort | None:
    """Return the port of a provider's service. `name` is its `host` or `namespace/host`.

    Return None if the name does not match exactly one service, or if the service does not have the port.
    """
    ref = find_service(db, name)
    provider = service(db, ref) if ref is not None else None
    return ProviderPort(provider.hostname, port) if provider is not None and provider.port(port) is not None else None
