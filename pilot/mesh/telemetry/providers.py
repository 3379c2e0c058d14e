"""The extension providers of the mesh config that Telemetries, and the mesh itself, send spans, logs and metrics to."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.config.mesh.mesh_config import DefaultProviders
from pilot.config.validation.extension_provider import find_fault
from pilot.derive import derived, hub
from pilot.mesh.registry.mesh_services import ProviderPort, find_service
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def default_providers(db: Mesh) -> DefaultProviders:
    """Returns the providers of workloads for which no Telemetry names any."""
    return mesh_config(db).default_providers


class WorkloadNames(NamedTuple):
    """Says how tracers of the mesh call workloads: by the cluster of a proxy's node, or by OpenTelemetry's conventions."""

    by_node: bool = False
    by_convention: bool = False


@hub
def workload_names(db: Mesh) -> WorkloadNames:
    """Returns which names of workloads some provider asks for, so that others do not tell workloads apart."""
    providers = mesh_config(db).extension_providers
    conventions = {p.opentelemetry.service_attribute_enrichment for p in providers if p.opentelemetry is not None}
    by_node = "ISTIO_CANONICAL" in conventions or any(p.datadog is not None for p in providers)
    return WorkloadNames(by_node, "OTEL_SEMANTIC_CONVENTIONS" in conventions)


@derived
def telemetry_provider(db: Mesh, name: str) -> ExtensionProvider | str:
    """Returns the provider of a name, in which upper and lower case are alike, or why there is none."""
    found = next((p for p in mesh_config(db).extension_providers if p.name.lower() == name.lower()), None)
    if found is None:
        return f"the mesh config has no extension provider {name}"
    return f"extension provider {name}: {fault}" if (fault := find_fault(found)) else found


@derived
def provider_port(db: Mesh, named: str, port: int) -> ProviderPort | None:
    """Returns the port of the service that a provider names, `host` or `namespace/host`; None where no service is meant, or several, or where it has
    no such port."""
    ref = find_service(db, named)
    found = service(db, ref) if ref is not None else None
    return ProviderPort(found.hostname, port) if found is not None and found.port(port) is not None else None
