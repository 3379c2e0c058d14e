"""The settings, from the mesh config and from the control plane, that all services depend on."""

from __future__ import annotations

import msgspec

from pilot.config.mesh.mesh_config import ServiceEntryVisibility
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


class ServiceRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, from the mesh config and from the control plane, that all services depend on.

    Edits to other settings do not affect services.
    """

    domain: str
    trust_domain: str
    trust_domain_aliases: tuple[str, ...] = ()
    export_to: tuple[str, ...] = ()
    entry_visibility: ServiceEntryVisibility | None = None
    session_label: str = ""
    session_header_label: str = ""
    label_external: bool = False


@hub
def service_rules(db: Mesh) -> ServiceRules:
    """Return the settings that all services depend on."""
    mesh = mesh_config(db)
    settings = db.settings.registry
    return ServiceRules(
        domain=settings.domain,
        trust_domain=mesh.trust_domain,
        trust_domain_aliases=mesh.trust_domain_aliases,
        export_to=mesh.default_service_export_to,
        entry_visibility=mesh.service_entry_visibility,
        session_label=settings.persistent_session_label,
        session_header_label=settings.persistent_session_header_label,
        label_external=settings.label_external_services,
    )
