"""Checks the mesh config and the mesh networks. The extension providers, default providers and services that they name
must exist."""

from __future__ import annotations

from msgspec.structs import replace

from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import ObjectRef, Problem, Problems, below, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.analysis.telemetry_provider import PARTS, check_provider, missing_support, needs_of
from pilot.mesh.registry.auto_addresses import entries_without_address
from pilot.mesh.registry.mesh_services import (
    explain_missing,
    find_service,
    named_port,
    provider_service,
    provider_variables,
)
from pilot.mesh.registry.services import refs_by_hostname, service
from pilot.mesh.security.authorizers import find_fault, is_authorizer
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config, mesh_networks
from pilot.mesh.tables.trust import has_trust_bundle

SERVICE_NOT_FOUND = "service-not-found"
MESH, NETWORKS = (
    ObjectRef(GroupKind("", "MeshConfig"), "", "mesh"),
    ObjectRef(GroupKind("", "MeshNetworks"), "", "networks"),
)


@derived
def _keys(db: Mesh) -> tuple[ObjectRef, ...]:
    return MESH, NETWORKS


@derived
def mesh_problems(db: Mesh, subject: ObjectRef) -> tuple[Problem, ...]:
    """Return the problems between other objects and the mesh config or the mesh networks."""
    problems = _check_config(db, mesh_config(db)) if subject == MESH else _check_networks(db)
    return tuple(replace(problem, object=subject) for problem in problems)


MESH_CONFIG = Check("mesh", _keys, mesh_problems)


def _check_config(db: Mesh, mesh: MeshConfig) -> Problems:
    for index, provider in enumerate(mesh.extension_providers):
        name = provider_service(provider)
        if name and (ref := find_service(db, name)) is None:
            yield warning(
                SERVICE_NOT_FOUND,
                f"extensionProviders[{index}]",
                explain_missing(db, name),
            )
        elif (
            name
            and ref is not None
            and (port := named_port(provider))
            and (provided := service(db, ref)) is not None
            and provided.port(port) is None
        ):
            yield warning(SERVICE_NOT_FOUND, f"extensionProviders[{index}]", f"{name} has no port {port}")
        for variable in provider_variables(provider):
            if variable not in db.environment:
                yield warning(
                    "no-variable",
                    f"extensionProviders[{index}]",
                    f"environment variable {variable} is not set in the control plane, so the header is empty",
                )
        if is_authorizer(provider) and (fault := find_fault(provider)):
            yield warning(
                "bad-provider",
                f"extensionProviders[{index}]",
                f"{fault}; policies with this provider deny all requests",
            )
    if not has_trust_bundle(db):
        for index, authority in enumerate(mesh.ca_certificates):
            if authority.pem:
                yield warning(
                    "no-effect",
                    f"caCertificates[{index}].pem",
                    "the certificate takes effect only if the mesh supports multiple roots",
                )
    yield from _check_prefixes(db)
    default = mesh.default_providers
    for field, part in PARTS.items():
        for index, name in enumerate(part.defaults(default)):
            yield from below(f"defaultProviders.{field}[{index}]", check_provider(db, name, part))
            yield from below(f"defaultProviders.{field}[{index}]", missing_support(db, needs_of(db, (name,), part), ()))


def _check_prefixes(db: Mesh) -> Problems:
    """Yield a warning for each exhausted prefix of allocated addresses."""
    registry = db.settings.registry
    prefixes = registry.ip_autoallocate_ipv4, registry.ip_autoallocate_ipv6
    for version, prefix, number in zip((4, 6), prefixes, entries_without_address(db), strict=True):
        if number:
            whose = "1 ServiceEntry has" if number == 1 else f"{number} ServiceEntries have"
            yield warning(
                "exhausted-prefix",
                "",
                f"{whose} no allocated IPv{version} address, because the prefix {prefix} is exhausted: set "
                f"PILOT_IP_AUTOALLOCATE_IPV{version}_PREFIX of the control plane to a larger one",
            )


def _check_networks(db: Mesh) -> Problems:
    for name, network in mesh_networks(db).networks.items():
        for index, gateway in enumerate(network.gateways):
            if gateway.registry_service_name and not refs_by_hostname(db, gateway.registry_service_name):
                path = f"networks.{name}.gateways[{index}].registryServiceName"
                yield warning("service-not-found", path, f"service {gateway.registry_service_name} not found")
